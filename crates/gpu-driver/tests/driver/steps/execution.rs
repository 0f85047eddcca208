//! Devices, contexts, code and launches.

use crate::code;
use crate::session::{Failure, Outcome, Session, check};
use causeway_api::calls;
use causeway_api::handle::{Function, Handle};
use causeway_api::image::Form;
use causeway_api::sys::{CUfunction_attribute, CUlimit};
use causeway_api::types::{LaunchAttribute, Region};
use causeway_gpu::Gpu;
use std::sync::{Arc, Mutex};

pub fn snapshot(session: &Session) -> Outcome {
    let snapshot = session.driver.snapshot()?;
    let device = snapshot.devices.first().ok_or_else(|| "there is no device".to_owned())?;
    check(device.attribute(10) == Some(32), || format!("warp size {:?}", device.attribute(10)))?;
    check(device.total_memory > 1 << 30, || format!("{} bytes of memory", device.total_memory))?;
    check(device.uuid != [0; 16] && !device.pci_bus_id.is_empty(), || format!("{device:?}"))?;
    check(snapshot.peers.len() == snapshot.devices.len().pow(2), || "peers are missing".into())?;
    let (name, count) = (&device.name, device.attributes.len());
    Ok(format!("{}; {} devices, {name}, {count} attributes", snapshot.backend, snapshot.devices.len()))
}

pub fn contexts(session: &Session) -> Outcome {
    let limit = CUlimit::CU_LIMIT_STACK_SIZE;
    let before = session.call(calls::context_limit_get { limit })?;
    session.call(calls::context_limit_set { limit, value: 4096 })?;
    let set = session.call(calls::context_limit_get { limit })?;
    check(set >= 4096, || format!("the stack limit was set to 4096 and is {set}"))?;
    session.call(calls::context_limit_set { limit, value: before })?;

    let own = session.handle();
    session.call(calls::context_create { context: own, device: 0, flags: 0 })?;
    let native = session.objects.native(own)?;
    // The primary context is the first object of every session.
    let primary = session.objects.native(Handle::new(0, 1))?;
    let stays = session.call(calls::context_limit_get { limit })?;
    check(stays == before, || "making a context changed the current one".into())?;
    session.driver.make_current(native)?;
    let stream = session.stream(1)?;
    let address = session.allocate(4096)?;
    session.call(calls::cuMemsetD8Async { dstDevice: address, uc: 1, N: 4096, hStream: stream })?;
    session.finish_all()?;
    drop(session.driver.staging(1 << 20)?);
    session.driver.context_destroy(session.objects.remove(own)?)?;
    session.driver.make_current(primary)?;
    let address = session.allocate(4096)?;
    session.free(address)?;
    Ok(String::new())
}

/// Adds two vectors by a function and checks the sum.
fn add(
    session: &Session,
    function: Handle<Function>,
    attributes: Vec<LaunchAttribute>,
) -> Result<(), Failure> {
    const COUNT: u32 = 100_000;
    let bytes = u64::from(COUNT) * 4;
    let addresses = [0, 1, 2].map(|_| session.allocate(bytes as usize));
    let [a, b, c] = addresses;
    let (a, b, c) = (a?, b?, c?);
    let values =
        |scale: f32| -> Vec<u8> { (0..COUNT).flat_map(|i| (i as f32 * scale).to_le_bytes()).collect() };
    session.write(&Region::linear(a, bytes), &values(1.0))?;
    session.write(&Region::linear(b, bytes), &values(0.5))?;
    let numbers = [a, b, c].map(u64::to_le_bytes);
    let count = COUNT.to_le_bytes();
    let params = code::parameters(&[&numbers[0], &numbers[1], &numbers[2], &count]);
    session.launch_with(function, [COUNT.div_ceil(256), 256], Handle::NULL, attributes, &params)?;
    check(session.read(&Region::linear(c, bytes))? == values(1.5), || "the sum is wrong".into())?;
    for address in [a, b, c] {
        session.free(address)?;
    }
    Ok(())
}

pub fn vector_add(session: &Session) -> Outcome {
    let module = session.module(Form::Single, code::BASICS.as_bytes())?;
    let (function, info) = session.function(module, "add")?;
    let layout: Vec<_> = info.parameters.iter().map(|part| (part.offset, part.size)).collect();
    check(layout == [(0, 8), (8, 8), (16, 8), (24, 4)], || format!("parameters {layout:?}"))?;
    let binary = CUfunction_attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION.0 as i32;
    check(info.attribute(binary).is_some_and(|version| version >= 70), || format!("{:?}", info.attributes))?;
    add(session, function, Vec::new())?;
    let (address, size) = session.call(calls::module_global { module, name: "table" })?;
    check(size == 16, || format!("the variable has {size} bytes"))?;
    check(session.read_u32(address + 8)? == 33, || "the variable has another value".into())?;
    let names = session.call(calls::module_function_names { module })?;
    check(names.iter().any(|name| name == "spin") && names.len() == 3, || format!("functions {names:?}"))?;
    check(session.function(module, "missing").is_err(), || "a missing function was found".into())?;
    let shared = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    session.call(calls::function_attribute_set { function, attribute: shared, value: 50 })?;
    session.call(calls::module_unload { module })?;
    Ok(format!("{} attributes", info.attributes.len()))
}

pub fn kernel(session: &Session) -> Outcome {
    let library = session.library(code::BASICS.as_bytes())?;
    let kernel = session.handle();
    let info = session.call(calls::library_kernel { kernel, library, name: "add" })?;
    check(info.parameters.len() == 4, || format!("parameters {:?}", info.parameters))?;
    check(info.attributes.len() > 8, || format!("attributes {:?}", info.attributes))?;
    // The client passes the kernel's handle where a function is expected.
    add(session, Handle::from_value(kernel.value()), Vec::new())?;
    let function = session.handle();
    session.call(calls::kernel_function { function, kernel })?;
    add(session, function, Vec::new())?;
    let names = session.call(calls::library_kernel_names { library })?;
    check(names.len() == 3, || format!("kernels {names:?}"))?;
    let (address, size) = session.call(calls::library_global { library, name: "table" })?;
    check(size == 16 && session.read_u32(address)? == 11, || "the variable is another one".into())?;
    let module = session.handle();
    session.call(calls::library_module { module, library })?;
    session.function(module, "spin")?;
    let carveout = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    session.call(calls::kernel_attribute_set { kernel, device: 0, attribute: carveout, value: 50 })?;
    session.call(calls::library_unload { library })?;
    Ok(String::new())
}

pub fn attributes(session: &Session) -> Outcome {
    let module = session.module(Form::Single, code::BASICS.as_bytes())?;
    let (function, _) = session.function(module, "add")?;
    let mut value = [0; 64];
    value[0] = 1;
    add(session, function, vec![LaunchAttribute { id: 2, value }])?;
    let refused = add(session, function, vec![LaunchAttribute { id: 7, value }]);
    check(refused.is_err(), || "an attribute that holds a handle was let through".into())?;
    let request = calls::cuOccupancyMaxActiveBlocksPerMultiprocessor {
        func: function,
        blockSize: 256,
        dynamicSMemSize: 0,
    };
    let blocks = session.call(request)?;
    check(blocks > 0, || format!("{blocks} blocks a multiprocessor"))?;
    session.call(calls::module_unload { module })?;
    Ok(format!("{blocks} blocks of 256 a multiprocessor"))
}

pub fn linking(session: &Session) -> Outcome {
    let module = session.module(Form::Linked, &code::linked_program())?;
    let (function, _) = session.function(module, "store_twice")?;
    let address = session.allocate(4)?;
    let params = code::parameters(&[&address.to_le_bytes(), &21u32.to_le_bytes()]);
    session.launch(function, [1, 1], Handle::NULL, &params)?;
    let value = session.read_u32(address)?;
    check(value == 42, || format!("twice 21 is {value}"))?;
    session.free(address)?;
    session.call(calls::module_unload { module })?;
    Ok(String::new())
}

pub fn damaged(session: &Session) -> Outcome {
    let program = code::linked_program();
    let cases: [(Form, &[u8]); 4] = [
        (Form::Single, b""),
        (Form::Single, b"this is no PTX"),
        (Form::Single, &program[..50]),
        (Form::Linked, &program[..program.len() - 1]),
    ];
    for (form, image) in cases {
        check(session.module(form, image).is_err(), || format!("{} bytes were loaded", image.len()))?;
    }
    Ok(String::new())
}

pub fn printing(session: &Session) -> Outcome {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let output = Arc::clone(&seen);
    session.driver.set_output(Box::new(move |_, bytes| {
        output.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend_from_slice(bytes);
    }));
    let printed = || {
        let bytes = core::mem::take(&mut *seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let module = session.module(Form::Single, code::SPEAKING.as_bytes())?;
    let (function, _) = session.function(module, "speak")?;
    let stream = session.stream(1)?;
    let event = session.handle();
    session.call(calls::event_create { event, flags: 2 })?;
    for (number, way) in ["after", "after_event", "after_context"].into_iter().enumerate() {
        session.launch(function, [1, 1], stream, &(number as u32).to_le_bytes())?;
        match way {
            "after" => session.finish(stream)?,
            "after_event" => {
                session.call(calls::event_record { event, stream, flags: 0 })?;
                let native = session.objects.native(event)?;
                session.wait(|done| session.driver.after_event(native, done))?;
            }
            _ => session.finish_all()?,
        }
        let text = printed();
        check(text == format!("the number is {number}\n"), || format!("{way}: printed {text:?}"))?;
    }
    // More than a pipe would hold.
    session.launch(function, [1000, 10], stream, &7u32.to_le_bytes())?;
    session.finish(stream)?;
    let lines = printed().lines().filter(|line| *line == "the number is 7").count();
    check(lines == 10_000, || format!("{lines} of 10000 lines"))?;
    session.call(calls::event_destroy { event })?;
    session.call(calls::stream_destroy { stream })?;
    Ok(String::new())
}
