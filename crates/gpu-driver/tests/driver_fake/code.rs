//! Images and launches, passed on to the driver.

use super::Fake;
use causeway_api::handle::Native;
use causeway_api::image::{EntryKind, Form, sample};
use causeway_api::sys::CUresult;
use causeway_api::types::{JitOptions, LaunchAttribute, LaunchShape};
use causeway_gpu::calls::*;

fn fatbin(kind: EntryKind, architecture: u32, payload: &[u8]) -> Vec<u8> {
    sample::fatbin(&[sample::plain(kind, architecture, payload)])
}

#[test]
fn launches_pass_one_parameter_buffer() {
    let fake = Fake::new();
    let module =
        fake.driver.module_load(Form::Single.number(), &JitOptions::default(), b".version 8.0").unwrap();
    let (function, info) = fake.driver.module_function(module, "f").unwrap();
    assert_eq!(info.parameters.iter().map(|p| (p.offset, p.size)).collect::<Vec<_>>(), [(0, 8), (8, 4)]);
    assert_eq!((info.attribute(0), info.attribute(2), info.attribute(15)), (Some(100), None, Some(115)));
    assert_eq!(fake.log(), "module text .version 8.0\nfunction f\n");
    let reported = JitOptions { report: 7, ..JitOptions::default() };
    assert_eq!(
        fake.driver.module_load(Form::Single.number(), &reported, b"bad"),
        Err(CUresult::CUDA_ERROR_INVALID_PTX)
    );
    assert_eq!(fake.driver.jit_report(7).unwrap().errors, "line 1: nothing is right here");
    assert_eq!(fake.log(), "module text bad\n");
    let shape = LaunchShape { grid: [1, 2, 3], block: [4, 5, 6], shared_bytes: 7 };
    fake.driver.launch(function, shape, Native::NULL, &[], &[9, 8, 7]).unwrap();
    let launched = "grid 1,2,3 block 4,5,6 shared 7 stream (nil) params (nil) bytes";
    assert_eq!(fake.log(), format!("launch {launched} 9 8 7\n"));
    fake.driver.launch(function, shape, Native::NULL, &[], &[]).unwrap();
    assert_eq!(fake.log(), format!("launch {launched}\n"));
    let mut value = [0; 64];
    value[0] = 2;
    fake.driver.launch(function, shape, Native::NULL, &[LaunchAttribute { id: 4, value }], &[1]).unwrap();
    assert_eq!(fake.log(), format!("launch ex {launched} 1\nattribute 4 value 2\n"));
    let refused =
        fake.driver.launch(function, shape, Native::NULL, &[LaunchAttribute { id: 7, value }], &[1]);
    assert_eq!(refused, Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
fn images_get_the_form_that_the_driver_takes() {
    let fake = Fake::new();
    let (ptx, code) = (fatbin(EntryKind::Ptx, 90, b"12345678"), fatbin(EntryKind::Cubin, 75, b"12345678"));
    let unaligned = [&[0], &ptx[..]].concat();
    fake.driver.library_load(Form::Single.number(), &JitOptions::default(), &unaligned[1..]).unwrap();
    fake.driver.module_load(Form::Single.number(), &JitOptions::default(), b"\x7fELF").unwrap();
    assert_eq!(fake.log(), "library fatbin no options\nmodule cubin \n");
    assert!(fake.driver.module_load(Form::Single.number(), &JitOptions::default(), &ptx[..40]).is_err());
    assert!(fake.driver.module_load(77, &JitOptions::default(), &ptx).is_err());
    // Linked code for another device: the parts are linked anew.
    let linked = [&code[..], &ptx[..], &ptx[..]].concat();
    fake.driver.module_load(Form::Linked.number(), &JitOptions::default(), &linked).unwrap();
    let add = format!("add kind 2 magic ba55ed50 size {} options 0\n", ptx.len());
    assert_eq!(fake.log(), format!("link options 2\n{add}{add}link destroyed\nmodule cubin \n"));
    // Linked code for this device is taken as it is.
    let linked = [&fatbin(EntryKind::Cubin, 90, b"12345678")[..], &ptx[..]].concat();
    fake.driver.module_load(Form::Linked.number(), &JitOptions::default(), &linked).unwrap();
    assert_eq!(fake.log(), "module bare fatbin \n");
}
