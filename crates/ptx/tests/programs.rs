//! Kernels compiled by nvcc (see `ptx/build.sh`), each compared with the same computation on the host.

mod common;

use causeway_ptx::Fault;
use common::{Device, Params, noise};

/// Runs a test with the PTX of both code generators of nvcc 13: the older one for `sm_75`, the newer for
/// `sm_100`.
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

#[test]
fn scan() {
    for_each_target!("programs", |device: &Device| {
        let numbers: Vec<i32> = (0..2048).map(|i| i * 37 % 101 - 50).collect();
        let (input, output) = (device.upload(&numbers), device.zeros::<i32>(2048));
        let sums = device.zeros::<i32>(4);
        let params = Params::default().with(input).with(output).with(sums).with(512_u32);
        device.try_launch("scan_block", [4, 1, 1], [256, 1, 1], 512 * 4, &params).unwrap();
        let scanned = device.download::<i32>(output, 2048);
        for (block, sum) in device.download::<i32>(sums, 4).into_iter().enumerate() {
            let mut running = 0;
            for i in block * 512..block * 512 + 512 {
                assert_eq!(scanned[i], running);
                running += numbers[i];
            }
            assert_eq!(sum, running);
        }
    });
}

#[test]
fn histogram() {
    for_each_target!("programs", |device: &Device| {
        let bytes: Vec<u8> = noise(100_003, 5).iter().map(|x| (x * x * 256.0) as u8).collect();
        let (input, bins) = (device.upload(&bytes), device.zeros::<u32>(256));
        device.launch(
            "histogram",
            17,
            192,
            Params::default().with(input).with(bins).with(bytes.len() as u32),
        );
        let mut expected = vec![0_u32; 256];
        bytes.iter().for_each(|&byte| expected[usize::from(byte)] += 1);
        assert_eq!(device.download::<u32>(bins, 256), expected);
    });
}

#[test]
fn transpose() {
    for_each_target!("programs", |device: &Device| {
        let (width, height) = (100, 70);
        let matrix = noise(width * height, 6);
        let (input, output) = (device.upload(&matrix), device.zeros::<f32>(width * height));
        let params = Params::default().with(input).with(output).with(width as u32).with(height as u32);
        device.try_launch("transpose", [4, 3, 1], [32, 8, 1], 0, &params).unwrap();
        let transposed = device.download::<f32>(output, width * height);
        for y in 0..height {
            for x in 0..width {
                assert_eq!(transposed[x * height + y], matrix[y * width + x]);
            }
        }
    });
}

#[test]
fn stencil() {
    for_each_target!("programs", |device: &Device| {
        let (nx, ny, nz) = (32, 16, 10);
        let (sy, sz) = (nx + 8, (nx + 8) * (ny + 8));
        let volume = noise(sz * (nz + 8), 7);
        let coefficients = [0.5_f32, 0.25, -0.125, 0.0625, -0.03125];
        let (symbol, size) = device.loaded.global("coefficients").unwrap();
        assert_eq!(size, 20);
        let bytes: Vec<u8> = coefficients.iter().flat_map(|number| number.to_le_bytes()).collect();
        device.space.write(symbol, &bytes).unwrap();
        let (input, output) = (device.upload(&volume), device.zeros::<f32>(nx * ny * nz));
        let params =
            Params::default().with(input).with(output).with(nx as u32).with(ny as u32).with(nz as u32);
        device.try_launch("stencil", [2, 2, 1], [16, 8, 1], 0, &params).unwrap();
        let result = device.download::<f32>(output, nx * ny * nz);
        for z in 0..nz {
            for y in 0..ny {
                for x in 0..nx {
                    let at = (z + 4) * sz + (y + 4) * sy + x + 4;
                    let mut sum = f64::from(coefficients[0]) * f64::from(volume[at]);
                    for (i, &c) in coefficients.iter().enumerate().skip(1) {
                        for stride in [1, sy, sz] {
                            sum +=
                                f64::from(c) * f64::from(volume[at + i * stride] + volume[at - i * stride]);
                        }
                    }
                    assert!((f64::from(result[(z * ny + y) * nx + x]) - sum).abs() < 1e-5);
                }
            }
        }
    });
}

#[test]
fn black_scholes() {
    for_each_target!("programs", |device: &Device| {
        let n = 1000;
        let scaled = |seed, low: f32, high: f32| -> Vec<f32> {
            noise(n, seed).iter().map(|x| low + x * (high - low)).collect()
        };
        let (price, strike, years) = (scaled(8, 5.0, 30.0), scaled(9, 1.0, 100.0), scaled(10, 0.25, 10.0));
        let outputs = [device.zeros::<f32>(n), device.zeros::<f32>(n)];
        let params = Params::default()
            .with(device.upload(&price))
            .with(device.upload(&strike))
            .with(device.upload(&years))
            .with(outputs[0])
            .with(outputs[1])
            .with(n as u32);
        device.launch("black_scholes", 3, 128, params);
        let (call, put) = (device.download::<f32>(outputs[0], n), device.download::<f32>(outputs[1], n));
        let normal = |d: f64| 0.5 * (1.0 + libm::erf(d * std::f64::consts::FRAC_1_SQRT_2));
        for i in 0..n {
            let (s, x, t) = (f64::from(price[i]), f64::from(strike[i]), f64::from(years[i]));
            let (rate, volatility) = (0.02, 0.3);
            let d1 = ((s / x).ln() + (rate + 0.5 * volatility * volatility) * t) / (volatility * t.sqrt());
            let d2 = d1 - volatility * t.sqrt();
            let discount = (-rate * t).exp();
            let expected = s * normal(d1) - x * discount * normal(d2);
            assert!((f64::from(call[i]) - expected).abs() < 1e-4, "{} and {expected}", call[i]);
            let expected = x * discount * normal(-d2) - s * normal(-d1);
            assert!((f64::from(put[i]) - expected).abs() < 1e-4, "{} and {expected}", put[i]);
        }
    });
}

#[test]
fn n_body() {
    for_each_target!("programs", |device: &Device| {
        let n = 256;
        let bodies = noise(n * 4, 11);
        let output = device.zeros::<f32>(n * 4);
        let params = Params::default().with(device.upload(&bodies)).with(output).with(n as u32);
        device.try_launch("n_body", [4, 1, 1], [64, 1, 1], 64 * 16, &params).unwrap();
        let result = device.download::<f32>(output, n * 4);
        for i in 0..n {
            let mut sum = [0_f64; 3];
            for k in 0..n {
                let d: [f64; 3] = std::array::from_fn(|axis| {
                    f64::from(bodies[k * 4 + axis]) - f64::from(bodies[i * 4 + axis])
                });
                let r2 = d.iter().map(|x| x * x).sum::<f64>() + 1e-3;
                let s = f64::from(bodies[k * 4 + 3]) / (r2 * r2.sqrt());
                (0..3).for_each(|axis| sum[axis] += d[axis] * s);
            }
            for axis in 0..3 {
                let got = f64::from(result[i * 4 + axis]);
                assert!((got - sum[axis]).abs() < 1e-3 * sum[axis].abs().max(1.0), "{got} and {}", sum[axis]);
            }
        }
    });
}

#[test]
fn cholesky() {
    for_each_target!("programs", |device: &Device| {
        let n = 48;
        let factor = noise(n * n, 12);
        let matrix: Vec<f64> = (0..n * n)
            .map(|at| {
                let (i, j) = (at / n, at % n);
                let product: f64 =
                    (0..n).map(|k| f64::from(factor[i * n + k]) * f64::from(factor[j * n + k])).sum();
                product + if i == j { n as f64 } else { 0.0 }
            })
            .collect();
        let address = device.upload(&matrix);
        device.launch("cholesky", 1, 64, Params::default().with(address).with(n as u32));
        let lower = device.download::<f64>(address, n * n);
        for i in 0..n {
            for j in 0..=i {
                let product: f64 = (0..=j).map(|k| lower[i * n + k] * lower[j * n + k]).sum();
                assert!((product - matrix[i * n + j]).abs() < 1e-10);
            }
        }
    });
}

#[test]
fn bitonic_sort() {
    for_each_target!("programs", |device: &Device| {
        let n = 2048_u32;
        let mut numbers: Vec<u32> = noise(n as usize, 13).iter().map(|x| (x * 1e6) as u32).collect();
        let address = device.upload(&numbers);
        let mut k = 2;
        while k <= n {
            let mut j = k / 2;
            while j > 0 {
                device.launch("bitonic_step", n / 128, 128, Params::default().with(address).with(j).with(k));
                j /= 2;
            }
            k *= 2;
        }
        numbers.sort_unstable();
        assert_eq!(device.download::<u32>(address, n as usize), numbers);
    });
}

#[test]
fn device_printf() {
    for_each_target!("programs", |device: &Device| {
        let params = Params::default().with(42_u32).with(2.5_f64).with(0_u64);
        device.launch("speak", 1, 4, params);
        assert_eq!(device.output.printed(), "block 0:    42|2.500   |text|z|123456789abcdef|%\n");
    });
}

#[test]
fn printf_returns_how_many_arguments_it_took() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n\
         .extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n\
         .visible .entry count(.param .u64 format, .param .u64 arguments, .param .u64 result)\n{\n\
         .reg .b32 %r<2>; .reg .b64 %rd<4>;\nld.param.u64 %rd1, [format]; ld.param.u64 %rd2, [arguments];\n\
         ld.param.u64 %rd3, [result];\n\
         { .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %rd1; st.param.b64 [b], %rd2;\n\
         call.uni (r), vprintf, (a, b); ld.param.b32 %r1, [r]; }\n\
         st.global.u32 [%rd3], %r1;\nret;\n}\n";
    let device = Device::new(&[source]);
    let arguments = device.upload(&[1_u64, 2.5_f64.to_bits()]);
    let result = device.zeros::<i32>(1);
    let print = |format: u64| {
        let params = Params::default().with(format).with(arguments).with(result);
        device.launch("count", 1, 1, params);
        device.download::<i32>(result, 1)[0]
    };
    assert_eq!(print(device.upload(b"no argument\n\0")), 0);
    assert_eq!(print(device.upload(b"two: %d %f\n\0")), 2);
    assert_eq!(print(0), -1);
    assert_eq!(device.output.printed(), "no argument\ntwo: 1 2.500000\n");
}

#[test]
fn conditions_of_graphs_are_set_by_their_handles() {
    let source = ".version 8.0\n.target sm_75\n.address_size 64\n\
         .extern .func cudaGraphSetConditional(.param .b64 a, .param .b32 b);\n\
         .visible .entry set(.param .u64 handle, .param .u32 value)\n{\n.reg .b32 %r<2>; .reg .b64 %rd<2>;\n\
         ld.param.u64 %rd1, [handle]; ld.param.u32 %r1, [value];\n\
         { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd1; st.param.b32 [b], %r1;\n\
         call.uni cudaGraphSetConditional, (a, b); }\nret;\n}\n";
    let device = Device::new(&[source]);
    let set = |handle: u64, value: u32| {
        device.try_launch("set", [1, 1, 1], [1, 1, 1], 0, &Params::default().with(handle).with(value))
    };
    assert!(set(2, 7).is_ok() && set(1 << 40, u32::MAX).is_ok());
    let fault = set(3, 1).unwrap_err();
    assert!(matches!(fault, Fault::IllegalAddress { address: 3, .. }), "{fault}");
    assert_eq!(*device.output.conditions.lock().unwrap(), [(2, 7), (1 << 40, u32::MAX), (3, 1)]);
}

#[test]
fn calls_with_structures_pointers_and_recursion() {
    for_each_target!("programs", |device: &Device| {
        let output = device.zeros::<f32>(32);
        // struct { float a; int b[3]; double c; }
        let params = Params::default()
            .with(1.5_f32)
            .with(10_i32)
            .with(20_i32)
            .with(30_i32)
            .with(0.25_f64)
            .with(output);
        device.launch("calls", 1, 32, params);
        let fibonacci = |n: usize| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
        for (i, &got) in device.download::<f32>(output, 32).iter().enumerate() {
            let picked = 1.5 * (i & 7) as f32 + [10.0, 20.0, 30.0][i % 3] + 0.25;
            let called = if i & 1 == 0 { i as f32 + 1.0 } else { i as f32 * 2.0 };
            assert_eq!(got, picked + called + fibonacci(i % 12) as f32, "thread {i}");
        }
    });
}

#[test]
fn atomics() {
    for_each_target!("programs", |device: &Device| {
        let n = 64 * 256_u64;
        let ints = device.upload(&[0_i32, 0, 0, -100]);
        let uints = device.upload(&[u32::MAX, 0, 0, 0, 0, 0, 0]);
        let longs = device.zeros::<u64>(2);
        let (floats, doubles) = (device.zeros::<f32>(1), device.zeros::<f64>(1));
        let params = Params::default().with(ints).with(uints).with(longs).with(floats).with(doubles);
        device.launch("atomics", 64, 256, params);
        let sum = (n * (n - 1) / 2) as i32;
        assert_eq!(device.download::<i32>(ints, 4), [sum, -sum, 5 - (n as i32 - 1), n as i32 - 6]);
        let xor = (0..n as u32).fold(0, |a, b| a ^ b);
        let (increments, decrements) = ((n % 100) as u32, ((100 - n % 100) % 100) as u32);
        let expected = [!0xffff, u32::MAX, xor, increments, decrements, 7, n as u32 * 3];
        assert_eq!(device.download::<u32>(uints, 7), expected);
        let expected = [(n * (n - 1) / 2) << 20, (n - 1) * (n - 1)];
        assert_eq!(device.download::<u64>(longs, 2), expected);
        assert_eq!(device.download::<f32>(floats, 1)[0], n as f32 * 0.5);
        assert_eq!(device.download::<f64>(doubles, 1)[0], n as f64 * 0.25);
    });
}

#[test]
fn warp_operations() {
    for_each_target!("programs", |device: &Device| {
        let threads = 96_u32;
        let output = device.zeros::<u32>(threads as usize * 12);
        device.launch("warp_operations", 1, threads, Params::default().with(output));
        let result = device.download::<u32>(output, threads as usize * 12);
        for t in 0..threads {
            let row = &result[t as usize * 12..][..12];
            let (lane, first) = (t % 32, t & !31);
            let ballot = (0..32).filter(|l| (first + l) % 3 == 0).map(|l| 1_u32 << l).sum();
            assert_eq!(row[0], ballot);
            assert_eq!(row[1], 2 + u32::from((first..first + 32).contains(&77)));
            assert_eq!(row[2], 0xf << (lane & !3));
            assert_eq!(row[3], 0_u32.wrapping_sub(1).wrapping_add(1));
            assert_eq!(row[4], u32::MAX);
            assert_eq!(row[5], if t & 1 == 1 { 0xaaaa_aaaa } else { 0 });
            assert_eq!(row[6], if t & 1 == 1 { first + 5 } else { 0 });
            assert_eq!(row[7], if lane % 8 >= 3 { t - 3 } else { t });
            assert_eq!(row[8], 32);
            assert_eq!(row[9], 20);
            assert_eq!(row[10], 3);
        }
    });
}

#[test]
fn two_sources_are_linked() {
    for sources in [
        [include_str!("ptx/part_one.75.ptx"), include_str!("ptx/part_two.75.ptx")],
        [include_str!("ptx/part_two.100.ptx"), include_str!("ptx/part_one.100.ptx")],
    ] {
        let device = Device::new(&sources);
        let output = device.zeros::<f32>(32);
        device.launch("linked", 1, 32, Params::default().with(output));
        let result = device.download::<f32>(output, 32);
        for (i, &got) in result.iter().enumerate() {
            assert_eq!(got, (i % 4 + 1) as f32 * 10.0 + 7.0 + 6.0);
        }
        let (counter, _) = device.loaded.global("counter").unwrap();
        assert_eq!(device.download::<i32>(counter, 1), [132]);
        assert_eq!(device.output.printed(), "even 0\nodd 1\n");
    }
}

#[test]
fn asynchronous_copies_and_groups() {
    for_each_target!("pipeline", |device: &Device| {
        let numbers: Vec<i32> = (0..256 * 5).map(|i| i * 31 % 97).collect();
        let (input, output) = (device.upload(&numbers), device.zeros::<i32>(2));
        device.launch("sum_of_tiles", 1, 256, Params::default().with(input).with(output).with(5_u32));
        assert_eq!(device.download::<i32>(output, 2), [numbers.iter().sum::<i32>(), 86]);
    });
}

#[test]
fn very_large_functions_compute_what_small_ones_do() {
    // Sums and products in turn, over many registers, with jumps between; more statements than code is
    // generated well for.
    const STEPS: u32 = 6000;
    let mut body = String::new();
    let (mut registers, mut single) = ([1_u32; 40], 1.0_f32);
    for step in 0..STEPS {
        let (to, from) = ((step * 7 % 40) as usize, (step * 11 % 40) as usize);
        body.push_str(&format!(
            "mad.lo.u32 %r{to}, %r{from}, 17, %r{to}; fma.rn.f32 %f0, %f0, 0f3F7FFF00, 0f3DCCCCCD;\n"
        ));
        registers[to] = registers[from].wrapping_mul(17).wrapping_add(registers[to]);
        single = single.mul_add(f32::from_bits(0x3F7F_FF00), 0.1);
        if step % 50 == 0 {
            body.push_str(&format!("bra L{step}; mov.u32 %r{to}, 0; L{step}:\n"));
        }
    }
    let first: String = (0..40).map(|index| format!("mov.u32 %r{index}, 1;")).collect();
    let last: String =
        (0..40).map(|index| format!("st.global.u32 [%rd0+{}], %r{index};", 4 * index)).collect();
    let source = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p) {{
         .reg .b32 %r<40>; .reg .b64 %rd<1>; .reg .f32 %f<1>; ld.param.u64 %rd0, [p]; {first} mov.f32 %f0, 0f3F800000;
         {body} {last} st.global.f32 [%rd0+160], %f0; ret; }}"
    );
    let device = Device::new(&[&source]);
    let out = device.zeros::<u32>(41);
    device.launch("k", 1, 2, Params::default().with(out));
    let expected: Vec<u32> = registers.into_iter().chain([single.to_bits()]).collect();
    assert_eq!(device.download::<u32>(out, 41), expected);
}

#[test]
fn very_large_functions_have_stack_for_all_that_lives_at_once() {
    // With a place on the stack for each value that ever was, 14,000 would be more than a thread has.
    const REGISTERS: u32 = 2000;
    let mut registers = vec![1_u32; REGISTERS as usize];
    let mut body = String::new();
    for to in 0..7 * REGISTERS {
        let (to, from) = (to % REGISTERS, (to * 7 + 1) % REGISTERS);
        body.push_str(&format!("mad.lo.u32 %r{to}, %r{from}, 17, %r{to};\n"));
        registers[to as usize] =
            registers[from as usize].wrapping_mul(17).wrapping_add(registers[to as usize]);
    }
    let first: String = (0..REGISTERS).map(|index| format!("mov.u32 %r{index}, 1;")).collect();
    let sum: String = (1..REGISTERS).map(|index| format!("add.u32 %r0, %r0, %r{index};")).collect();
    let source = format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p) {{
         .reg .b32 %r<{REGISTERS}>; .reg .b64 %rd<1>; ld.param.u64 %rd0, [p]; {first} {body} {sum}
         st.global.u32 [%rd0], %r0; ret; }}"
    );
    let device = Device::new(&[&source]);
    let out = device.zeros::<u32>(1);
    device.launch("k", 1, 2, Params::default().with(out));
    assert_eq!(
        device.download::<u32>(out, 1),
        [registers.iter().fold(0_u32, |sum, one| sum.wrapping_add(*one))]
    );
}
