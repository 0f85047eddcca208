//! Kernels compiled by nvcc that compute with every kind of number, compared with the host.

mod common;

use common::{Device, Params, noise};

#[test]
fn integers() {
    for source in [include_str!("ptx/programs.75.ptx"), include_str!("ptx/programs.100.ptx")] {
        let device = Device::new(&[source]);
        let mut state = 0x1234_5678_9abc_def1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state ^ state >> 29) as i64
        };
        let mut a: Vec<i64> = vec![0, 1, -1, i64::MIN, i64::MAX, 1 << 31, -(1 << 31), 255];
        let mut b: Vec<i64> = vec![1, -1, 0, 5, i64::MIN, -(1 << 31), 77, 63];
        (0..500).for_each(|i| {
            a.push(next() >> (i % 50));
            b.push(next() >> (i * 7 % 60));
        });
        let output = device.zeros::<u64>(a.len());
        let params = Params::default()
            .with(device.upload(&a))
            .with(device.upload(&b))
            .with(output)
            .with(a.len() as u32);
        device.launch("integers", 8, 64, params);
        for (i, &got) in device.download::<u64>(output, a.len()).iter().enumerate() {
            assert_eq!(got, expected_integer(a[i], b[i]), "{} and {}", a[i], b[i]);
        }
    }
}

/// The same computation as the kernel `integers`.
fn expected_integer(x: i64, y: i64) -> u64 {
    let (ux, uy, ix, iy) = (x as u32, y as u32, x as i32, y as i32);
    let mut r = 0_u64;
    let mut mix = |value: u64| r = r.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(value);
    let signed = |value: i32| i64::from(value) as u64;
    mix(x.wrapping_mul(y) as u64);
    mix(x.wrapping_div(y | 1) as u64);
    mix(x.wrapping_rem(y | 1) as u64);
    mix(x as u64 / (y as u64 | 1));
    mix(((i128::from(x) * i128::from(y)) >> 64) as u64);
    mix(((u128::from(x as u64) * u128::from(y as u64)) >> 64) as u64);
    mix(signed(((i64::from(ix) * i64::from(iy)) >> 32) as i32));
    mix((u64::from(ux) * u64::from(uy)) >> 32);
    mix(u64::from(ux.count_ones()));
    mix(u64::from(x.count_ones()));
    mix(u64::from(ux.leading_zeros()));
    mix(u64::from(x.leading_zeros()));
    mix(if ux == 0 { 0 } else { u64::from(ux.trailing_zeros()) + 1 });
    mix(if x == 0 { 0 } else { u64::from(x.trailing_zeros()) + 1 });
    mix(u64::from(ux.reverse_bits()));
    mix(x.reverse_bits() as u64);
    let permute = |selector: u32| {
        let bytes = (u64::from(uy) << 32 | u64::from(ux)).to_le_bytes();
        let picked = std::array::from_fn(|i| bytes[(selector >> (4 * i) & 7) as usize]);
        u64::from(u32::from_le_bytes(picked))
    };
    mix(permute(0x3715));
    mix(permute(uy & 0x7777));
    let both = u64::from(uy) << 32 | u64::from(ux);
    mix(both << (uy & 31) >> 32);
    mix(u64::from((both >> (uy & 63).min(32)) as u32));
    mix(u64::from(ix.abs_diff(iy).wrapping_add(7)));
    mix(u64::from(ux.abs_diff(uy).wrapping_add(7)));
    mix(signed((ix << 8 >> 8).wrapping_mul(iy << 8 >> 8)));
    mix(u64::from((ux & 0xff_ffff).wrapping_mul(uy & 0xff_ffff)));
    let dot: i32 = (0..4).map(|i| i32::from((ix >> (8 * i)) as i8) * i32::from((iy >> (8 * i)) as i8)).sum();
    mix(signed(dot + 5));
    let dot: u32 = (0..4).map(|i| (ux >> (8 * i) & 255) * (uy >> (8 * i) & 255)).sum();
    mix(u64::from(dot + 5));
    mix((x as u64) << (y & 63));
    mix((x >> (y & 63)) as u64);
    mix(x as u64 >> (y & 63));
    mix(u64::from(ux << (uy & 31)));
    mix(signed(i32::from(x as i16) * i32::from(y as i16)));
    mix(signed(i32::from(x as i8) / (i32::from(y as i8) | 1)));
    mix(signed(i32::from(x as u16) % (i32::from(y as u16) | 1)));
    mix(x.min(y) as u64);
    mix(u64::from(ux.max(uy)));
    mix(signed((ix >> 1).abs()));
    mix((x >> 1).unsigned_abs());
    let bytes = |f: fn(u8, u8) -> u8| {
        let (a, b) = (ux.to_le_bytes(), uy.to_le_bytes());
        u64::from(u32::from_le_bytes(std::array::from_fn(|i| f(a[i], b[i]))))
    };
    mix(bytes(u8::wrapping_add));
    mix(bytes(u8::abs_diff));
    let halves =
        [0, 16].map(|shift| u32::from(((ux >> shift) as i16).max((uy >> shift) as i16) as u16) << shift);
    mix(u64::from(halves[0] | halves[1]));
    mix((i128::from(x).wrapping_mul(i128::from(y)) >> 40) as u64);
    // The second operand is sign-extended before the addition, as C++ converts it.
    mix((i128::from(x).wrapping_add(i128::from(y)) as u128 >> 3) as u64);
    r
}

/// How far two numbers may be apart: relative to the larger, with an absolute part for results near zero.
fn close(got: f64, expected: f64, relative: f64, absolute: f64) -> bool {
    got == expected
        || (got.is_nan() && expected.is_nan())
        || (got - expected).abs() <= relative * expected.abs() + absolute
}

fn functions(x: f64, large: f64) -> Vec<f64> {
    vec![
        x.exp(),
        x.exp2(),
        x.ln(),
        x.log2(),
        x.log10(),
        x.sin(),
        x.cos(),
        x.tan(),
        (x / 10.0).asin(),
        (x / 10.0).acos(),
        x.atan(),
        x.atan2(2.0),
        x.sinh(),
        x.cosh(),
        x.tanh(),
        libm::erf(x),
        libm::erfc(x),
        x.powf(1.7),
        x.sqrt(),
        1.0 / x.sqrt(),
        x.cbrt(),
        x.floor(),
        x.ceil(),
        x.round_ties_even(),
        x.round(),
        x.trunc(),
        x % 0.7,
        x.hypot(3.0),
        1.0 / x,
        x / 3.0,
        libm::lgamma(x),
        x.exp_m1(),
        x.ln_1p(),
        large.sin(),
    ]
}

fn inputs() -> Vec<f32> {
    let mut inputs: Vec<f32> = noise(300, 20).iter().map(|x| x * 19.0 - 4.0).collect();
    inputs.extend([0.5, 1.0, 2.0, -0.5, 1e-3, 4.5, 8.5, 9.999]);
    inputs
}

#[test]
fn single_precision_functions() {
    for source in [include_str!("ptx/programs.75.ptx"), include_str!("ptx/programs.100.ptx")] {
        let device = Device::new(&[source]);
        let inputs = inputs();
        let output = device.zeros::<f32>(inputs.len() * 40);
        let params = Params::default().with(device.upload(&inputs)).with(output).with(inputs.len() as u32);
        device.launch("single_functions", 5, 64, params);
        let results = device.download::<f32>(output, inputs.len() * 40);
        for (i, &x) in inputs.iter().enumerate() {
            // The kernel multiplies and divides in single precision before it calls the function.
            let mut expected = functions(f64::from(x), f64::from(x * 1e6_f32));
            expected[8] = f64::from(x / 10.0).asin();
            expected[9] = f64::from(x / 10.0).acos();
            expected[17] = f64::from(x).powf(f64::from(1.7_f32));
            expected[26] = f64::from(x) % f64::from(0.7_f32);
            for (k, &expected) in expected.iter().enumerate() {
                let got = f64::from(results[i * 40 + k]);
                assert!(close(got, expected, 2e-6, 1e-6), "function {k} of {x}: {got}, not {expected}");
            }
        }
    }
}

#[test]
fn double_precision_functions() {
    for source in [include_str!("ptx/programs.75.ptx"), include_str!("ptx/programs.100.ptx")] {
        let device = Device::new(&[source]);
        let inputs: Vec<f64> = inputs().iter().map(|&x| f64::from(x) + 1e-9).collect();
        let output = device.zeros::<f64>(inputs.len() * 40);
        let params = Params::default().with(device.upload(&inputs)).with(output).with(inputs.len() as u32);
        device.launch("double_functions", 5, 64, params);
        let results = device.download::<f64>(output, inputs.len() * 40);
        for (i, &x) in inputs.iter().enumerate() {
            for (k, &expected) in functions(x, x * 1e6).iter().enumerate() {
                let got = results[i * 40 + k];
                assert!(close(got, expected, 4e-15, 2e-15), "function {k} of {x}: {got}, not {expected}");
            }
        }
    }
}

#[test]
fn approximate_functions() {
    for source in [include_str!("ptx/fast.75.ptx"), include_str!("ptx/fast.100.ptx")] {
        let device = Device::new(&[source]);
        let inputs: Vec<f32> = noise(200, 21).iter().map(|x| x * 3.0 + 0.01).collect();
        let output = device.zeros::<f32>(inputs.len() * 16);
        let params = Params::default().with(device.upload(&inputs)).with(output).with(inputs.len() as u32);
        device.launch("fast_functions", 4, 64, params);
        let results = device.download::<f32>(output, inputs.len() * 16);
        for (i, &single) in inputs.iter().enumerate() {
            let x = f64::from(single);
            let expected = [
                x.exp(),
                x.ln(),
                x.sin(),
                x.cos(),
                x.powf(1.7),
                x.sqrt(),
                1.0 / x.sqrt(),
                1.0 / x,
                x / 3.0,
                x.tanh(),
                x.clamp(0.0, 1.0),
                x / 7.0,
            ];
            for (k, &expected) in expected.iter().enumerate() {
                let got = f64::from(results[i * 16 + k]);
                assert!(close(got, expected, 1e-5, 1e-6), "function {k} of {x}: {got}, not {expected}");
            }
        }
        // Compiled with flushing: subnormal numbers become zero, with their sign, before and after.
        let numbers =
            [f32::MIN_POSITIVE, -f32::MIN_POSITIVE, f32::MIN_POSITIVE * 2.0, f32::from_bits(1), 1.0];
        let output = device.zeros::<f32>(5);
        device.launch("subnormal", 1, 5, Params::default().with(device.upload(&numbers)).with(output));
        let bits: Vec<u32> = device.download::<f32>(output, 5).iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, [0, 0x8000_0000, f32::MIN_POSITIVE.to_bits(), 0, 0.5_f32.to_bits()]);
    }
}

#[test]
fn half_precision() {
    use half::{bf16, f16};
    for source in [include_str!("ptx/half.75.ptx"), include_str!("ptx/half.100.ptx")] {
        let device = Device::new(&[source]);
        let mut inputs: Vec<f32> = noise(300, 22).iter().map(|x| x * 40.0 - 20.0).collect();
        inputs.extend([0.0, 1e-6, -3e-5, 6.1e-5, 255.9, -1000.0]);
        let output = device.zeros::<f32>(inputs.len() * 16);
        let params = Params::default().with(device.upload(&inputs)).with(output).with(inputs.len() as u32);
        device.launch("halves", 5, 64, params);
        let results = device.download::<f32>(output, inputs.len() * 16);
        for (i, &x) in inputs.iter().enumerate() {
            let (a, b) = (f16::from_f32(x), f16::from_f32(x * 0.37));
            let (c, d) = (bf16::from_f32(x), bf16::from_f32(x * 0.37));
            let fused =
                |x: f16, y: f16, z: f16| f16::from_f64(x.to_f64().mul_add(y.to_f64(), z.to_f64())).to_f32();
            let quarter = f16::from_f32(0.25);
            let single = |value: f32| f16::from_f32(value).to_f32();
            let brain = |value: f32| bf16::from_f32(value).to_f32();
            let expected = [
                single(a.to_f32() + b.to_f32()),
                single(a.to_f32() * b.to_f32()),
                fused(a, b, a),
                single(a.to_f32() - b.to_f32()),
                fused(a, a, quarter),
                fused(b, b, quarter),
                f32::from(u8::from(a < b)),
                brain(c.to_f32() + d.to_f32()),
                brain(c.to_f32() * d.to_f32()),
                brain(c.to_f32() * d.to_f32()),
                brain(c.to_f32() * d.to_f32()),
                a.to_f32().trunc(),
                single(i as f32),
                single(a.to_f32().abs().sqrt()),
                a.to_f32().max(b.to_f32()),
                -a.to_f32(),
            ];
            for (k, &expected) in expected.iter().enumerate() {
                let got = results[i * 16 + k];
                // The square root is approximate on the device: one unit in the last place of a half.
                let near = k == 13 && (got - expected).abs() <= expected * 1e-3;
                assert!(got == expected || near, "result {k} of {x}: {got}, not {expected}");
            }
        }
    }
}
