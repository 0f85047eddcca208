//! Copies of boxes of tensors (`cp.async.bulk.tensor`) beside a model of what CUDA says of them.

use causeway_ptx::Fault;
use causeway_ptx::tensor_map::{MAX_TENSOR_RANK, Swizzle, TensorMap};

use crate::common::{Device, Params};

/// A kernel that loads a box by one map, has threads copy shared memory as it lies to `seen`, and stores the box by another
/// map. The coordinates of both follow the addresses of the maps.
fn source(rank: usize) -> String {
    let coordinates: Vec<String> = (0..rank).map(|axis| format!("%c{axis}")).collect();
    let coordinates = coordinates.join(", ");
    let loads: String =
        (0..rank).map(|axis| format!("ld.param.s32 %c{axis}, [start + {}];\n", 4 * axis)).collect();
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n
        .visible .entry k(.param .align 64 .b8 map[128], .param .u64 back, .param .u64 seen, .param .u32 size,
                          .param .u32 at, .param .align 4 .b8 start[20]) {{
        .reg .b32 %r<12>; .reg .b64 %rd<9>; .reg .pred %p<4>; .reg .b32 %c<5>; .reg .b8 %b<2>; .reg .b16 %h<2>;
        .shared .align 1024 .b8 buffer[65536]; .shared .align 8 .b64 object;
        mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; ld.param.u64 %rd2, [back]; ld.param.u64 %rd3, [seen];
        ld.param.u32 %r1, [size]; ld.param.u32 %r7, [at];
        {loads}
        mov.u32 %r2, %tid.x; mov.u32 %r3, buffer; mov.u32 %r4, object; add.u32 %r3, %r3, %r7;
        setp.ne.u32 %p1, %r2, 0; @%p1 bra wait;
        prefetch.param.tensormap [%rd1];
        fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
        mbarrier.init.shared::cta.b64 [%r4], 1; fence.proxy.async;
        mbarrier.arrive.expect_tx.shared::cta.b64 %rd4, [%r4], %r1;
        cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd1, {{{coordinates}}}], [%r4];
        wait: bar.sync 0;
        again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0; @!%p2 bra again;
        mov.u32 %r5, %r2;
        each: setp.ge.u32 %p3, %r5, %r1; @%p3 bra copied;
        add.u32 %r6, %r3, %r5; ld.shared.u8 %h1, [%r6]; cvt.u64.u32 %rd5, %r5; add.u64 %rd5, %rd5, %rd3;
        st.global.u8 [%rd5], %h1; add.u32 %r5, %r5, 32; bra each;
        copied: fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra end;
        cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%rd2, {{{coordinates}}}], [%r3];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        end: ret; }}"
    )
}

/// Numbers without order.
struct Random(u64);

impl Random {
    fn next(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn random_map(random: &mut Random, rank: usize) -> TensorMap {
    loop {
        let element_bytes = 1 << random.next(4);
        let swizzles = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];
        let swizzle = swizzles[random.next(4) as usize];
        let row = match swizzle {
            Swizzle::None => 16 * (1 + random.next(9)),
            swizzle => 16 << swizzle as u64,
        };
        let mut map = TensorMap {
            rank,
            element_bytes,
            flushes_subnormals: element_bytes == 4 && random.next(2) == 0,
            address: 0,
            dims: [0; MAX_TENSOR_RANK],
            strides: [0; MAX_TENSOR_RANK - 1],
            box_dims: [0; MAX_TENSOR_RANK],
            element_strides: [0; MAX_TENSOR_RANK],
            swizzle,
        };
        let mut stride = 0;
        for axis in 0..rank {
            map.dims[axis] = 1 + random.next(if axis == 0 { 150 } else { 9 });
            map.element_strides[axis] = 1 + random.next(3) as u32;
            map.box_dims[axis] = 1 + random.next(7) as u32;
            if axis == 0 {
                stride = (map.dims[0] * u64::from(element_bytes)).next_multiple_of(16) + 16 * random.next(2);
            } else {
                map.strides[axis - 1] = stride;
                stride *= map.dims[axis];
            }
        }
        map.box_dims[0] = (row / u64::from(element_bytes)) as u32;
        if map.box_bytes() <= 60_000 && map.box_dims[0] <= 256 && stride <= 1 << 20 {
            return map;
        }
    }
}

/// Bytes that a tensor takes.
fn bytes_of(map: &TensorMap) -> usize {
    let last = map.rank - 1;
    let row = map.dims[0] * u64::from(map.element_bytes);
    (if last == 0 { row } else { map.strides[last - 1] * map.dims[last] }) as usize
}

/// Calls with the offset in the tensor, if it has such an element, and in the box, of each element that is moved.
fn for_each_element(map: &TensorMap, start: &[i32], mut call: impl FnMut(Option<usize>, usize)) {
    let counts: Vec<u32> = (0..map.rank).map(|axis| map.count(axis)).collect();
    let elements: u32 = counts.iter().product();
    for index in 0..elements {
        let (mut rest, mut offset) = (index, Some(0_i64));
        for axis in 0..map.rank {
            let step = if axis == 0 { 1 } else { map.element_strides[axis] };
            let at = i64::from(start[axis]) + i64::from(rest % counts[axis] * step);
            rest /= counts[axis];
            let stride = if axis == 0 { i64::from(map.element_bytes) } else { map.strides[axis - 1] as i64 };
            let is_within = at >= 0 && at < map.dims[axis] as i64;
            offset = offset.filter(|_| is_within).map(|offset| offset + at * stride);
        }
        call(offset.map(|offset| offset as usize), index as usize * map.element_bytes as usize);
    }
}

#[test]
fn boxes_of_tensors_are_copied_as_the_model_says() {
    let mut random = Random(11);
    for rank in 1..=MAX_TENSOR_RANK {
        let device = Device::new(&[&source(rank)]);
        for _ in 0..40 {
            let mut map = random_map(&mut random, rank);
            let size = map.box_bytes() as usize;
            let start: Vec<i32> = (0..MAX_TENSOR_RANK).map(|_| random.next(24) as i32 - 10).collect();
            let tensor: Vec<u8> = (0..bytes_of(&map)).map(|_| random.next(256) as u8 & 0x83).collect();
            let (from, to, seen) =
                (device.upload(&tensor), device.zeros::<u8>(tensor.len()), device.zeros::<u8>(size));
            map.address = from;
            let at = 1024 * random.next(4) as u32;
            // A map that kernels read in global memory, and one among the parameters.
            let back = device.upload(&TensorMap { address: to, ..map }.encode());
            let mut params = Params(map.encode().to_vec());
            params = params.with(back).with(seen).with(size as u32).with(at);
            for coordinate in &start {
                params = params.with(*coordinate);
            }
            device.launch("k", 1, 32, params);
            let (mut expected, mut stored) = (vec![0; size], vec![0; tensor.len()]);
            let bytes = map.element_bytes as usize;
            for_each_element(&map, &start, |offset, at| {
                let at = map.swizzle.apply(at as u64) as usize;
                let Some(offset) = offset else { return };
                let mut element = tensor[offset..offset + bytes].to_vec();
                // Bit 7 of the last byte is the sign; the exponent has the rest of it and one bit more.
                if map.flushes_subnormals && element[3] & 0x7f == 0 && element[2] & 0x80 == 0 {
                    element[..3].fill(0);
                }
                expected[at..at + bytes].copy_from_slice(&element);
                stored[offset..offset + bytes].copy_from_slice(&element);
            });
            assert!(device.download::<u8>(seen, size) == expected, "{map:?} {start:?}");
            assert!(device.download::<u8>(to, tensor.len()) == stored, "{map:?} {start:?}");
        }
    }
}

#[test]
fn what_is_no_map_or_too_large_ends_the_kernel() {
    let device = Device::new(&[&source(1)]);
    let tensor = device.zeros::<u8>(1024);
    let map = TensorMap {
        rank: 1,
        element_bytes: 4,
        flushes_subnormals: false,
        address: tensor,
        dims: [256, 0, 0, 0, 0],
        strides: [0; 4],
        box_dims: [256, 0, 0, 0, 0],
        element_strides: [1, 0, 0, 0, 0],
        swizzle: Swizzle::None,
    };
    let launch = |bytes: [u8; 128], at: u32| {
        let params = Params(bytes.to_vec()).with(0_u64).with(tensor).with(1024_u32).with(at);
        let params = params.with(0_i32).with(0_i32).with(0_i32).with(0_i32).with(0_i32);
        device.try_launch("k", [1, 1, 1], [32, 1, 1], 0, &params).unwrap_err()
    };
    let mut damaged = map.encode();
    damaged[3] ^= 4;
    let other_rank = TensorMap { rank: 2, dims: [256, 1, 0, 0, 0], strides: [1024, 0, 0, 0], ..map };
    let other_rank =
        TensorMap { box_dims: [256, 1, 0, 0, 0], element_strides: [1, 1, 0, 0, 0], ..other_rank };
    for bytes in [damaged, [0; 128], other_rank.encode()] {
        let fault = launch(bytes, 0);
        assert!(matches!(fault, Fault::IllegalInstruction { .. }), "{fault}");
    }
    // Beyond the block's shared memory, not at a multiple of 128, and a tensor that is not the device's.
    for (bytes, at) in [
        (map.encode(), 65_536 - 512),
        (map.encode(), 64),
        (TensorMap { address: 0x1000, ..map }.encode(), 0),
        (TensorMap { address: u64::MAX - 15, ..map }.encode(), 0),
    ] {
        let fault = launch(bytes, at);
        assert!(matches!(fault, Fault::IllegalAddress { .. } | Fault::Misaligned { .. }), "{fault}");
    }
}
