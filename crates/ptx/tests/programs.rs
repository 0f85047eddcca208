//! Kernels compiled by nvcc (see `ptx/build.sh`), each compared with the same computation on the host.

mod common;

use common::{Device, Params, noise};

/// Runs a test with the PTX of both code generators of nvcc 13: the older one for `sm_75`, the newer for `sm_100`.
macro_rules! for_each_target {
    ($name:literal, $test:expr) => {
        for source in [
            include_str!(concat!("ptx/", $name, ".75.ptx")),
            include_str!(concat!("ptx/", $name, ".100.ptx")),
        ] {
            $test(&Device::new(&[source]));
        }
    };
}

#[test]
fn vector_add() {
    for_each_target!("basics", |device: &Device| {
        let n = 10_007;
        let (a, b) = (noise(n, 1), noise(n, 2));
        let (pa, pb, pc) = (device.upload(&a), device.upload(&b), device.zeros::<f32>(n));
        let params = Params::default().with(pa).with(pb).with(pc).with(n as u32);
        device.launch("vector_add", 40, 256, params);
        let c = device.download::<f32>(pc, n);
        assert!((0..n).all(|i| c[i] == a[i] + b[i]));
    });
}

#[test]
fn matrix_multiply() {
    for_each_target!("basics", |device: &Device| {
        let n = 64;
        let (a, b) = (noise(n * n, 3), noise(n * n, 4));
        let (pa, pb, pc) = (device.upload(&a), device.upload(&b), device.zeros::<f32>(n * n));
        let params = Params::default().with(pa).with(pb).with(pc).with(n as u32);
        device.try_launch("matrix_multiply", [4, 4, 1], [16, 16, 1], 0, &params).unwrap();
        let c = device.download::<f32>(pc, n * n);
        for row in 0..n {
            for column in 0..n {
                let sum = (0..n).fold(0_f32, |sum, k| a[row * n + k].mul_add(b[k * n + column], sum));
                assert_eq!(c[row * n + column], sum, "({row}, {column})");
            }
        }
    });
}

#[test]
fn reduce() {
    for_each_target!("basics", |device: &Device| {
        let numbers: Vec<f32> = (0..100_000).map(|i| (i % 7) as f32).collect();
        let (input, output) = (device.upload(&numbers), device.zeros::<f32>(1));
        let params = Params::default().with(input).with(output).with(numbers.len() as u32);
        device.launch("reduce", 13, 256, params);
        assert_eq!(device.download::<f32>(output, 1)[0], numbers.iter().sum::<f32>());
    });
}
