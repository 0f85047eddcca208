//! The software GPU through the trait that the worker uses: memory, modules, launches and their errors.

mod client;

use causeway_api::handle::{self, Handle, Native};
use causeway_api::image::Form;
use causeway_api::sys::{CUfunction_attribute, CUlimit, CUmemPool_attribute, CUresult};
use causeway_api::types::{JitOptions, LaunchAttribute, LaunchShape, Payload, Region};
use causeway_gpu::calls::*;
use causeway_gpu::gpudirect::{GpuDirectMemory, GpuDirectPath};
use causeway_gpu::objects::Objects;
use causeway_gpu::{Gpu, dispatch};
use client::{Client, LEGACY, PTX, shape};
use std::sync::{Arc, Mutex};

#[test]
fn vectors_are_added() {
    let client = Client::new();
    let count = 100_000;
    let a: Vec<f32> = (0..count).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..count).map(|i| 0.5 * i as f32).collect();
    let (a_at, b_at) = (client.upload(&a), client.upload(&b));
    let sum = client.gpu.memory_allocate(count * 4).unwrap();
    let parameters = parameters!(a_at, b_at, sum, count as i32);
    let function = client.function("vector_add");
    client.gpu.launch(function, shape(count.div_ceil(256) as u32, 256), LEGACY, &[], &parameters).unwrap();
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(client.download::<f32>(sum, count, LEGACY), Ok(expected));
}

#[test]
fn requests_are_dispatched() {
    let client = Client::new();
    let objects = Objects::default();
    let call = |request: Request<'_>, payload: &[u8]| {
        let mut reply = Vec::new();
        dispatch(&client.gpu, &objects, &request, payload, &mut reply).map(|()| reply)
    };
    use causeway_api::calls::*;
    let library = Handle::<handle::Library>::new(1, 1);
    let kernel = Handle::<handle::Kernel>::new(2, 1);
    let load = library_load {
        library,
        form: Form::Single.number(),
        options: JitOptions::default(),
        image: Payload::Inline(&[]),
    };
    call(Request::library_load(load), PTX.as_bytes()).unwrap();
    call(Request::library_kernel(library_kernel { kernel, library, name: "add_to" }), &[]).unwrap();
    let cell = client.upload(&[40]);
    let launch = launch {
        // The driver takes a kernel where a function is expected.
        function: Handle::from_value(kernel.value()),
        shape: shape(1, 1),
        stream: Handle::NULL,
        attributes: Vec::new(),
        params: &parameters!(cell, 2_i32),
    };
    call(Request::launch(launch), &[]).unwrap();
    assert_eq!(client.download::<i32>(cell, 1, LEGACY), Ok(vec![42]));
    call(Request::library_unload(library_unload { library }), &[]).unwrap();
    let gone = cuLibraryGetKernelCount { lib: library };
    assert_eq!(call(Request::cuLibraryGetKernelCount(gone), &[]), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
}

#[test]
fn what_kernels_print_comes_before_the_completion() {
    let client = Client::new();
    let printed = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&printed);
    client.gpu.set_output(Box::new(move |_, text| sink.lock().unwrap().extend_from_slice(text)));
    client.launch("say", 3, LEGACY, &parameters!(3_i32)).unwrap();
    client.wait(LEGACY).unwrap();
    let text = String::from_utf8(printed.lock().unwrap().clone()).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["thread 0 of 3", "thread 1 of 3", "thread 2 of 3"]);
}

#[test]
fn an_illegal_address_ends_the_context_and_no_other() {
    let client = Client::new();
    let cell = client.upload(&[1]);
    client.launch("write_far", 1, LEGACY, &parameters!(cell)).unwrap();
    let illegal = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_eq!(client.wait(LEGACY), Err(illegal));
    assert_eq!(client.wait(LEGACY), Err(illegal), "the error stays");
    assert_eq!(client.gpu.memory_allocate(4), Err(illegal));
    assert_eq!(client.gpu.stream_query(LEGACY), Err(illegal));
    assert_eq!(client.launch("add_to", 1, LEGACY, &parameters!(cell, 1_i32)), Err(illegal));
    let other = client.gpu.context_create(0, 0).unwrap();
    client.gpu.make_current(other).unwrap();
    let cell = client.upload(&[7]);
    assert_eq!(client.download::<i32>(cell, 1, LEGACY), Ok(vec![7]));
}

#[test]
fn a_failed_assertion_is_told_and_named() {
    let client = Client::new();
    let printed = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&printed);
    client.gpu.set_output(Box::new(move |_, text| sink.lock().unwrap().extend_from_slice(text)));
    let cell = client.upload(&[1]);
    client.launch("expect_zero", 1, LEGACY, &parameters!(cell)).unwrap();
    assert_eq!(client.wait(LEGACY), Err(CUresult::CUDA_ERROR_ASSERT));
    assert!(String::from_utf8(printed.lock().unwrap().clone()).unwrap().contains("*cell == 0"));
}

#[test]
fn launches_beyond_the_limits_are_refused() {
    let client = Client::new();
    let cell = client.upload(&[0]);
    let parameters = parameters!(cell, 1_i32);
    let function = client.function("add_to");
    let launch = |shape, attributes: &[LaunchAttribute], parameters: &[u8]| {
        client.gpu.launch(function, shape, LEGACY, attributes, parameters)
    };
    let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch(shape(1, 1025), &[], &parameters), invalid);
    assert_eq!(launch(shape(0, 1), &[], &parameters), invalid);
    assert_eq!(launch(LaunchShape { grid: [1, 70_000, 1], ..shape(1, 1) }, &[], &parameters), invalid);
    assert_eq!(launch(shape(1, 1), &[], &[]), invalid);
    assert_eq!(launch(shape(1, 1), &[], &parameters[..8]), Ok(()), "a number is left out");
    let wide = LaunchShape { shared_bytes: 100 << 10, ..shape(1, 1) };
    assert_eq!(launch(wide, &[], &parameters), invalid);
    let dynamic = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    client.gpu.function_attribute_set(function, dynamic, 100 << 10).unwrap();
    assert_eq!(launch(wide, &[], &parameters), Ok(()));
    assert!(client.gpu.function_attribute_set(function, dynamic, 300 << 10).is_err());
    let attribute = |id| LaunchAttribute { id, value: [1; 64] };
    let not_supported = Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(launch(shape(2, 1), &[attribute(2)], &parameters), Ok(()), "a cooperative launch");
    let too_large = Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_eq!(launch(shape(1 << 20, 1), &[attribute(2)], &parameters), too_large);
    assert_eq!(launch(shape(1, 1), &[attribute(8)], &parameters), Ok(()), "a priority");
    assert_eq!(launch(shape(1, 1), &[attribute(999)], &parameters), not_supported);
    let unknown = Native::from_value(u64::MAX);
    assert!(client.gpu.launch(unknown, shape(1, 1), LEGACY, &[], &parameters).is_err());
    assert_eq!(client.download::<i32>(cell, 1, LEGACY), Ok(vec![4]));
}

#[test]
fn variables_of_modules_have_addresses() {
    let client = Client::new();
    let (counter, size) = client.gpu.module_global(client.module, "counter").unwrap();
    assert_eq!(size, 4);
    client.launch("count_up", 1, LEGACY, &parameters!(11_i32)).unwrap();
    assert_eq!(client.download::<i32>(counter, 1, LEGACY), Ok(vec![111]));
    assert!(client.gpu.memory_free(counter).is_err(), "a variable is no allocation");
    let (factors, size) = client.gpu.module_global(client.module, "factors").unwrap();
    client.gpu.cuMemsetD32Async(factors, 2.5_f32.to_bits(), size / 4, LEGACY).unwrap();
    let values = client.upload(&[1.0_f32, 2.0, 3.0, 4.0]);
    client.launch("scale", 4, LEGACY, &parameters!(values)).unwrap();
    assert_eq!(client.download::<f32>(values, 4, LEGACY), Ok(vec![2.5, 5.0, 7.5, 10.0]));
    assert_eq!(client.gpu.module_global(client.module, "nothing"), Err(CUresult::CUDA_ERROR_NOT_FOUND));
}

#[test]
fn functions_know_their_attributes() {
    let client = Client::new();
    let (function, info) = client.gpu.module_function(client.module, "vector_add").unwrap();
    let sizes: Vec<_> = info.parameters.iter().map(|p| (p.offset, p.size)).collect();
    assert_eq!(sizes, [(0, 8), (8, 8), (16, 8), (24, 4)]);
    let value = |attribute: CUfunction_attribute| info.attribute(attribute.0.cast_signed());
    assert_eq!(value(CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION), Some(75));
    assert_eq!(value(CUfunction_attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION), Some(120));
    assert_eq!(value(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), Some(1024));
    assert_eq!(client.gpu.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 1024, 0), Ok(2));
    let names = client.gpu.module_function_names(client.module).unwrap();
    assert!(names.contains(&"reverse_in_shared".to_owned()));
    assert_eq!(client.gpu.cuModuleGetFunctionCount(client.module), Ok(names.len() as u32));
    assert!(client.gpu.module_function(client.module, "nothing").is_err());
}

#[test]
fn a_library_has_variables_of_its_own_in_each_context() {
    let client = Client::new();
    let library =
        client.gpu.library_load(Form::Single.number(), &JitOptions::default(), PTX.as_bytes()).unwrap();
    let (kernel, _) = client.gpu.library_kernel(library, "count_up").unwrap();
    let function = client.gpu.kernel_function(kernel).unwrap();
    client.gpu.launch(function, shape(1, 1), LEGACY, &[], &parameters!(1_i32)).unwrap();
    let (first, _) = client.gpu.library_global(library, "counter").unwrap();
    assert_eq!(client.download::<i32>(first, 1, LEGACY), Ok(vec![101]));
    let other = client.gpu.context_create(0, 0).unwrap();
    client.gpu.make_current(other).unwrap();
    let (second, _) = client.gpu.library_global(library, "counter").unwrap();
    assert_ne!(first, second);
    assert_eq!(client.download::<i32>(second, 1, LEGACY), Ok(vec![100]));
    let wrong = client.gpu.launch(function, shape(1, 1), LEGACY, &[], &parameters!(1_i32));
    assert_eq!(wrong, Err(CUresult::CUDA_ERROR_INVALID_HANDLE), "a function belongs to its context");
    let as_function = Native::from_value(kernel.value());
    client.gpu.launch(as_function, shape(1, 1), LEGACY, &[], &parameters!(5_i32)).unwrap();
    assert_eq!(client.download::<i32>(second, 1, LEGACY), Ok(vec![105]));
}

#[test]
fn a_kernel_has_attributes_of_its_own_on_each_device() {
    let options = causeway_gpu_software::Options { memory: 64 << 20, devices: 2, ..Default::default() };
    let gpu = causeway_gpu_software::SoftwareGpu::with_options(&options).unwrap();
    let library = gpu.library_load(Form::Single.number(), &JitOptions::default(), PTX.as_bytes()).unwrap();
    let (kernel, _) = gpu.library_kernel(library, "count_up").unwrap();
    let max_shared = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    gpu.kernel_attribute_set(kernel, 1, max_shared, 64 << 10).unwrap();
    let launched = [0, 1].map(|device| {
        let context = gpu.primary_context_retain(device, 0).unwrap();
        gpu.make_current(context).unwrap();
        let large = LaunchShape { shared_bytes: 60 << 10, ..shape(1, 1) };
        gpu.launch(gpu.kernel_function(kernel).unwrap(), large, LEGACY, &[], &parameters!(1_i32))
    });
    assert_eq!(launched, [Err(CUresult::CUDA_ERROR_INVALID_VALUE), Ok(())]);
}

#[test]
fn memory_is_filled_and_copied_in_two_dimensions() {
    let client = Client::new();
    let pitch = 512;
    let start = client.gpu.memory_allocate(pitch * 10).unwrap();
    client.gpu.cuMemsetD8Async(start, 0, pitch * 10, LEGACY).unwrap();
    client.gpu.cuMemsetD2D16Async(start, pitch, 0x0102, 50, 10, LEGACY).unwrap();
    assert!(client.gpu.cuMemsetD2D16Async(start + 1, pitch, 0, 50, 10, LEGACY).is_err());
    assert!(client.gpu.cuMemsetD2D32Async(start, pitch, 0, 25, 11, LEGACY).is_err());
    let dense = client.gpu.memory_allocate(1000).unwrap();
    let source = Region { address: start, row_pitch: 512, slice_pitch: 0, width: 100, height: 10, depth: 1 };
    let target = Region { address: dense, row_pitch: 100, ..source };
    client.gpu.copy_within_device(target.into(), source.into(), LEGACY).unwrap();
    let bytes = client.download::<u8>(dense, 1000, LEGACY).unwrap();
    assert!(bytes.chunks(2).all(|element| element == 0x0102_u16.to_ne_bytes()));
    assert!(
        client.gpu.copy_within_device(target.into(), Region { width: 99, ..source }.into(), LEGACY).is_err()
    );
}

#[test]
fn long_copies_arrive_whole() {
    let client = Client::new();
    let bytes = (20 << 20) + 3;
    let mut sent = client.gpu.staging(bytes).unwrap();
    for (index, byte) in sent.as_mut_slice().iter_mut().enumerate() {
        *byte = (index % 251) as u8;
    }
    let address = client.gpu.memory_allocate(bytes).unwrap();
    let region = Region::linear(address, bytes as u64);
    // SAFETY: the staging lives until the download is through, which comes after in the stream.
    unsafe { client.gpu.start_copy_to_device(&region.into(), sent.as_ptr(), LEGACY) }.unwrap();
    assert_eq!(client.download::<u8>(address, bytes, LEGACY).unwrap(), sent.as_slice());
}

#[test]
fn freed_memory_is_out_of_reach() {
    let client = Client::new();
    let (free, total) = client.gpu.cuMemGetInfo_v2().unwrap();
    assert_eq!(total, 256 << 20);
    let cell = client.upload(&[1, 2, 3]);
    assert!(client.gpu.cuMemGetInfo_v2().unwrap().0 < free);
    client.gpu.memory_free(cell).unwrap();
    assert_eq!(client.gpu.cuMemGetInfo_v2().unwrap().0, free);
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    assert_eq!(client.gpu.memory_free(cell), Err(invalid));
    assert_eq!(client.download::<i32>(cell, 1, LEGACY), Err(invalid));
    assert_eq!(client.gpu.cuMemsetD8Async(cell, 0, 4, LEGACY), Err(invalid));
    assert_eq!(client.gpu.memory_allocate(1 << 30), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(client.gpu.memory_allocate(0), Err(invalid));
    client.launch("add_to", 1, LEGACY, &parameters!(cell, 1_i32)).unwrap();
    assert_eq!(client.wait(LEGACY), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
}

#[test]
fn stream_ordered_memory_is_used_again_in_its_stream() {
    let client = Client::new();
    let stream = client.stream();
    let pool = client.gpu.memory_pool_default(0).unwrap();
    let used = |attribute| client.gpu.memory_pool_attribute_get(pool, attribute).unwrap();
    // 64 times 16 MiB fit into 256 MiB only because frees precede allocations in the stream.
    for round in 0..64 {
        let block = client.gpu.memory_allocate_async(16 << 20, Native::NULL, stream).unwrap();
        client.gpu.cuMemsetD32Async(block, round, 4 << 20, stream).unwrap();
        client.gpu.memory_free_async(block, stream).unwrap();
    }
    client.wait(stream).unwrap();
    assert_eq!(used(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert_eq!(used(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0, "nothing is to be kept");
    assert!(used(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 16 << 20);

    let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    let own = client.gpu.memory_pool_create(0, 1 << 20).unwrap();
    client.gpu.memory_pool_attribute_set(own, threshold, u64::MAX).unwrap();
    let block = client.gpu.memory_allocate_async(1 << 20, own, stream).unwrap();
    assert_eq!(
        client.gpu.memory_allocate_async(1 << 20, own, stream),
        Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
        "the pool's limit"
    );
    client.gpu.memory_free_async(block, stream).unwrap();
    assert!(client.gpu.memory_free_async(block, stream).is_err());
    client.wait(stream).unwrap();
    let reserved = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    assert_eq!(client.gpu.memory_pool_attribute_get(own, reserved), Ok(1 << 20), "the pool keeps it");
    let again = client.gpu.memory_allocate_async(1 << 20, own, client.stream()).unwrap();
    assert_eq!(again, block);
    client.gpu.memory_free_async(again, stream).unwrap();
    client.wait(stream).unwrap();
    client.gpu.cuMemPoolTrimTo(own, 0).unwrap();
    assert_eq!(client.gpu.memory_pool_attribute_get(own, reserved), Ok(0));
    client.gpu.cuMemPoolDestroy(own).unwrap();
    assert!(client.gpu.cuMemPoolDestroy(pool).is_err(), "the default pool stays");
}

#[test]
fn contexts_come_and_go() {
    let client = Client::new();
    let primary = client.gpu.primary_context_retain(0, 0).unwrap();
    assert!(client.gpu.context_destroy(primary).is_err(), "it is released, not destroyed");
    let (free, _) = client.gpu.cuMemGetInfo_v2().unwrap();
    let other = client.gpu.context_create(0, 0).unwrap();
    client.gpu.make_current(other).unwrap();
    client.upload(&[1; 1000]);
    let stack = CUlimit::CU_LIMIT_STACK_SIZE;
    client.gpu.context_limit_set(stack, 4096).unwrap();
    assert_eq!(client.gpu.context_limit_get(stack), Ok(4096));
    assert!(client.gpu.context_limit_get(CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH).is_err());
    client.gpu.context_destroy(other).unwrap();
    assert_eq!(client.gpu.memory_allocate(1), Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED));
    client.gpu.make_current(primary).unwrap();
    assert_eq!(client.gpu.cuMemGetInfo_v2().unwrap().0, free, "its memory is free again");
    client.gpu.primary_context_release(primary, 0).unwrap();
    client.gpu.cuMemGetInfo_v2().unwrap();
    client.gpu.primary_context_release(primary, 0).unwrap();
    assert!(client.gpu.cuMemGetInfo_v2().is_err());
    let fresh = client.gpu.primary_context_retain(0, 0).unwrap();
    client.gpu.make_current(fresh).unwrap();
    assert_eq!(client.gpu.cuMemGetInfo_v2(), Ok((256 << 20, 256 << 20)));
    client.gpu.make_current(Native::NULL).unwrap();
    assert_eq!(client.gpu.cuMemGetInfo_v2(), Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    assert!(client.gpu.context_create(1, 0).is_err());
}

#[test]
fn network_cards_get_addresses_of_live_memory() {
    let client = Client::new();
    assert_eq!(client.gpu.gpudirect_paths(0).usable, [GpuDirectPath::HostMemory]);
    let address = client.gpu.memory_allocate(8192).unwrap();
    let direct = |way, address, bytes| client.gpu.gpudirect_memory(way, address, bytes);
    assert!(matches!(direct(GpuDirectPath::HostMemory, address + 100, 8000), Ok(GpuDirectMemory::Addresses)));
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    assert_eq!(direct(GpuDirectPath::HostMemory, address + 100, 1 << 20).unwrap_err(), invalid);
    assert_eq!(direct(GpuDirectPath::HostMemory, address, 0).unwrap_err(), invalid);
    assert_eq!(direct(GpuDirectPath::DmaBuf, address, 100).unwrap_err(), CUresult::CUDA_ERROR_NOT_SUPPORTED);
    client.gpu.memory_free(address).unwrap();
    assert_eq!(direct(GpuDirectPath::HostMemory, address, 100).unwrap_err(), invalid);
}
