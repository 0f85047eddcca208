//! Module images as nvcc makes them, and damaged ones.

mod client;

use causeway_api::image::Form;
use causeway_api::sys::CUresult;
use causeway_api::types::JitOptions;
use causeway_gpu::Gpu;
use causeway_gpu::calls::*;
use client::{Client, LEGACY, PTX, shape};

const PLAIN: &[u8] = include_bytes!("fixtures/packed_none.fatbin");
const LZ4: &[u8] = include_bytes!("fixtures/packed_speed.fatbin");
const ZSTD: &[u8] = include_bytes!("fixtures/packed_size.fatbin");
const CUBIN_ONLY: &[u8] = include_bytes!("fixtures/cubin_only.fatbin");
const LINKED_A: &[u8] = include_bytes!("fixtures/linked_a.fatbin");
const LINKED_B: &[u8] = include_bytes!("fixtures/linked_b.fatbin");

/// A fat binary without entries, as the device linker leaves it behind for PTX.
const EMPTY: &[u8] = b"\x50\xed\x55\xba\x01\x00\x10\x00\0\0\0\0\0\0\0\0";

#[test]
fn packed_and_plain_fat_binaries_are_read() {
    let client = Client::new();
    for (name, image) in [("plain", PLAIN), ("LZ4", LZ4), ("zstd", ZSTD)] {
        let module = client.gpu.module_load(Form::Single.number(), &JitOptions::default(), image).unwrap();
        let (function, _) = client.gpu.module_function(module, "reverse_in_shared").unwrap();
        let values = client.upload(&[1, 2, 3, 4]);
        let shape = causeway_api::types::LaunchShape { shared_bytes: 16, ..shape(1, 4) };
        client.gpu.launch(function, shape, LEGACY, &[], &parameters!(values, 4_i32)).unwrap();
        assert_eq!(client.download::<i32>(values, 4, LEGACY), Ok(vec![4, 3, 2, 1]), "{name}");
        client.gpu.module_unload(module).unwrap();
        assert!(client.gpu.module_function(module, "reverse_in_shared").is_err());
        assert!(client.gpu.launch(function, shape, LEGACY, &[], &parameters!(values, 4_i32)).is_err());
    }
}

#[test]
fn objects_are_linked() {
    let client = Client::new();
    let image = [EMPTY, LINKED_A, LINKED_B, CUBIN_ONLY].concat();
    let library = client.gpu.library_load(Form::Linked.number(), &JitOptions::default(), &image).unwrap();
    let (kernel, _) = client.gpu.library_kernel(library, "use_other_object").unwrap();
    let function = client.gpu.kernel_function(kernel).unwrap();
    let values = client.upload(&[1, 2, 3, 4]);
    client.gpu.launch(function, shape(1, 4), LEGACY, &[], &parameters!(values)).unwrap();
    assert_eq!(client.download::<i32>(values, 4, LEGACY), Ok(vec![103, 205, 307, 409]));
    let half = [EMPTY, LINKED_A].concat();
    assert_eq!(
        client.gpu.library_load(Form::Linked.number(), &JitOptions::default(), &half),
        Err(CUresult::CUDA_ERROR_INVALID_PTX),
        "references stay open"
    );
}

#[test]
fn images_without_usable_ptx_are_refused() {
    let client = Client::new();
    let load =
        |image: &[u8]| client.gpu.module_load(Form::Single.number(), &JitOptions::default(), image).map(drop);
    assert_eq!(load(CUBIN_ONLY), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
    assert_eq!(load(b"\x7fELF\x02\x01\x01"), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
    assert_eq!(load(b"this is not PTX"), Err(CUresult::CUDA_ERROR_INVALID_IMAGE));
    let later = b".version 9.6\n.target sm_75\n.address_size 64\n";
    assert_eq!(load(later), Err(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
    assert_eq!(load(&[0xff; 40]), Err(CUresult::CUDA_ERROR_INVALID_IMAGE));
    assert!(load(b"").is_err());
}

#[test]
fn damaged_images_never_end_the_worker() {
    let client = Client::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let linked = [EMPTY, LINKED_A, LINKED_B].concat();
    let images: [(Form, &[u8]); 5] = [
        (Form::Single, PLAIN),
        (Form::Single, LZ4),
        (Form::Single, ZSTD),
        (Form::Linked, &linked),
        (Form::Single, PTX.as_bytes()),
    ];
    for round in 0..400 {
        let (form, image) = images[round % images.len()];
        let mut image = image.to_vec();
        for _ in 0..=next(4) {
            let place = if next(2) == 0 { next(image.len().min(160)) } else { next(image.len()) };
            image[place] = next(256) as u8;
        }
        if next(4) == 0 {
            image.truncate(next(image.len()));
        }
        if let Ok(module) = client.gpu.module_load(form.number(), &JitOptions::default(), &image) {
            client.gpu.module_unload(module).unwrap();
        }
    }
    client.gpu.after_context(Box::new(|outcome| assert_eq!(outcome, Ok(())))).unwrap();
}

#[test]
fn kernels_that_cannot_run_are_refused_one_by_one() {
    let client = Client::new();
    let body = "{ .reg .b32 %r<9>; .reg .f32 %f<9>;\nmma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f0}, {%r1}, {%r2}, {%f1};\nret; }";
    let head = ".version 9.5\n.target sm_80\n.address_size 64\n";
    let load = |text: &str, report| {
        let options = JitOptions { report, ..JitOptions::default() };
        client.gpu.module_load(Form::Single.number(), &options, text.as_bytes()).unwrap()
    };
    let module = load(&format!("{head}.visible .entry bad() {body}\n.visible .entry good() {{ ret; }}"), 77);
    let information = client.gpu.jit_report(77).unwrap().information;
    assert!(information.starts_with("kernel `bad` cannot run: line 5: `mma.sync."), "{information}");
    assert_eq!(information.lines().count(), 1);
    assert_eq!(client.gpu.module_function(module, "bad").err(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    assert_eq!(client.gpu.module_function(module, "none").err(), Some(CUresult::CUDA_ERROR_NOT_FOUND));
    let (good, _) = client.gpu.module_function(module, "good").unwrap();
    client.gpu.launch(good, shape(1, 1), LEGACY, &[], &[]).unwrap();
    assert_eq!(client.gpu.module_function_names(module), Ok(vec!["bad".to_owned(), "good".to_owned()]));
    // A module with nothing that could run is loaded all the same, and a library, too.
    let module = load(&format!("{head}.visible .entry bad() {body}"), 78);
    assert_eq!(client.gpu.module_function(module, "bad").err(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    let text = format!("{head}.visible .entry bad() {body}");
    let library =
        client.gpu.library_load(Form::Single.number(), &JitOptions::default(), text.as_bytes()).unwrap();
    assert_eq!(client.gpu.library_kernel(library, "bad").err(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}
