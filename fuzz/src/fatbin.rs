//! What must hold for any module image: it is refused, or its module can be unloaded again.

use std::sync::LazyLock;

use causeway_api::types::JitOptions;
use causeway_gpu::Gpu;
use causeway_gpu::calls::*;
use causeway_gpu_software::{Options, SoftwareGpu};

/// Loads an image into the software GPU. The first byte is its form's number: a single image, or linked ones.
pub fn fatbin(bytes: &[u8]) {
    static GPU: LazyLock<SoftwareGpu> = LazyLock::new(|| {
        let options = Options { memory: 64 << 20, ..Options::default() };
        SoftwareGpu::with_options(&options).expect("addresses can be reserved")
    });
    thread_local! {
        static CURRENT: () = {
            let context = GPU.primary_context_retain(0, 0).expect("there is a device");
            GPU.make_current(context).expect("the context was made");
        };
    }
    CURRENT.with(|()| ());
    let Some((&form, image)) = bytes.split_first() else { return };
    if let Ok(module) = GPU.module_load(u32::from(form % 4), &JitOptions::default(), image) {
        GPU.module_unload(module).expect("a module that was loaded can be unloaded");
    }
}
