//! Instructions of textures and surfaces: their forms, and what becomes of kernels that misuse them.

mod common;

use causeway_ptx::texture::{
    AddressMode, Channel, Filter, Image, Sampling, Slices, Surface, TexelFormat, Texture,
};
use causeway_ptx::{CompileError, CompileOptions, Fault, Host, LaunchConfig, Program};
use common::{Device, Params, kernel, pool};

/// The handles of the tests' objects.
const TEXTURE: u64 = 7;
const SURFACE: u64 = 8;

/// A launch's objects: a texture by its handle, and by the address of a `.texref` variable, and a surface.
struct Objects {
    texture: Texture,
    reference: u64,
    surface: Surface,
}

impl Host for Objects {
    fn print(&self, _: &[u8]) {}
    fn assertion(&self, _: &str) {}
    fn set_condition(&self, _: u64, _: u32) -> bool {
        false
    }
    fn texture(&self, handle: u64) -> Option<&Texture> {
        (handle == TEXTURE || handle == self.reference).then_some(&self.texture)
    }
    fn surface(&self, handle: u64) -> Option<&Surface> {
        (handle == SURFACE).then_some(&self.surface)
    }
}

const SAMPLING: Sampling = Sampling {
    address: [AddressMode::Clamp; 3],
    filter: Filter::Point,
    level_filter: Filter::Point,
    level_bias: 0.0,
    level_range: [0.0, 9.0],
    border: [0.0; 4],
    normalized_coordinates: false,
    normalized_values: false,
    srgb: false,
};

/// Runs the kernel `k` of a source with one thread over an image of 4 x 3 x 2 texels of two numbers, in which
/// number `c` of texel (x, y, z) is `1000 c + 100 z + 10 y + x`. Gives what it has written to its first
/// parameter, and the image.
fn run(source: &str) -> (Result<(), Fault>, [u32; 8], Vec<u32>) {
    let device = Device::new(&[source]);
    let texel = |index: u32| [0, 1000].map(|c| c + 100 * (index / 12) + 10 * (index / 4 % 3) + index % 4);
    let texels: Vec<u32> = (0..24).flat_map(texel).collect();
    let address = device.upload(&texels);
    let image = Image { address, size: [4, 3, 2], row_pitch: 32, slice_pitch: 96 };
    let (slices, format) = (Slices::Depth, TexelFormat { channel: Channel::Unsigned32, channels: 2 });
    let texture = Texture { levels: Box::new([image]), slices, format, sampling: SAMPLING };
    let reference = device.loaded.global("old").map_or(u64::MAX - 9, |(address, _)| address);
    let objects = Objects { texture, reference, surface: Surface { image, slices, format } };
    let out = device.zeros::<u32>(8);
    let params = Params::default().with(out).with(out);
    let config = LaunchConfig {
        grid: [1; 3],
        block: [1; 3],
        cluster: None,
        dynamic_shared: 0,
        cooperative: false,
        priority: 0,
        params: &params.0,
    };
    let ended = device.loaded.launch("k", config, pool(), &objects);
    (ended, device.download(out, 8).try_into().unwrap(), device.download(address, 48))
}

/// What instructions leave in `%r4` to `%r7`, with the texture's handle in `%rd2` and the surface's in `%rd3`.
fn results(instructions: &str) -> (Result<(), Fault>, [u32; 4], Vec<u32>) {
    let source = kernel(&format!(
        "mov.u64 %rd2, {TEXTURE}; mov.u64 %rd3, {SURFACE};
        mov.f32 %f0, 0f3FC00000; mov.f32 %f1, 0f40200000; mov.f32 %f2, 0f3F800000;
        mov.u32 %r0, 1; mov.u32 %r1, 2; mov.u32 %r2, 8; mov.u32 %r4, 99; mov.u32 %r5, 99;
        {instructions}
        st.global.v4.u32 [%rd0], {{%r4, %r5, %r6, %r7}};"
    ));
    let (ended, out, image) = run(&source);
    (ended, out[..4].try_into().unwrap(), image)
}

#[test]
fn fetches_of_every_form_find_their_texel() {
    for (instruction, wanted) in [
        ("tex.1d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%f0}];", [1, 1001]),
        ("tex.1d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%rd2, {%r1}];", [2, 1002]),
        ("tex.1d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%rd2, %r1];", [2, 1002]),
        ("tex.2d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%f0, %f1}];", [21, 1021]),
        ("tex.2d.v4.s32.s32 {%r4, %r5, %r6, %r7}, [%rd2, {%r1, %r0}];", [12, 1012]),
        ("tex.3d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%f1, %f0, %f2, %f2}];", [112, 1112]),
        ("tex.a1d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%r0, %f1}];", [102, 1102]),
        ("tex.a2d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%r0, %f1, %f0, %f0}];", [112, 1112]),
        ("tex.level.2d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%f0, %f1}], %f0;", [21, 1021]),
        ("tex.level.2d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%rd2, {%r1, %r0}], %r0;", [12, 1012]),
        ("tex.base.2d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%f0, %f1}];", [21, 1021]),
        (
            "tex.grad.2d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%f0, %f1}], {%f0, %f0}, {%f1, %f1};",
            [21, 1021],
        ),
        ("tex.2d.v4.u32.f32 {%r4, %r5, _, _}, [%rd2, {%f0, %f1}];", [21, 1021]),
        ("tex.2d.v4.u32.f32 {%r4, %r5, %r6, %r7}|%p1, [%rd2, {%f0, %f1}]; @!%p1 trap;", [21, 1021]),
        (
            "tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%rd2, {%f0, %f1}]; mov.b32 %r4, %f4; mov.b32 %r5, %f5;",
            [21, 1021],
        ),
        ("tld4.r.2d.v4.u32.f32 {%r4, %r6, %r7, %r5}, [%rd2, {%f2, %f2}];", [10, 0]),
        ("tld4.g.2d.v4.u32.f32 {%r4, %r6, %r7, %r5}, [%rd2, {%f2, %f2}];", [1010, 1000]),
        ("txq.width.b32 %r4, [%rd2]; txq.height.b32 %r5, [%rd2];", [4, 3]),
        ("txq.depth.b32 %r4, [%rd2]; txq.num_mipmap_levels.b32 %r5, [%rd2];", [2, 1]),
        ("txq.addr_mode_1.b32 %r4, [%rd2]; txq.level.width.b32 %r5, [%rd2], %r2;", [1, 4]),
        ("suq.width.b32 %r4, [%rd3]; suq.channel_order.b32 %r5, [%rd3];", [4, 0x10b2]),
    ] {
        let (ended, got, _) = results(instruction);
        assert_eq!((ended, [got[0], got[1]]), (Ok(()), wanted), "{instruction}");
    }
}

#[test]
fn loads_and_stores_of_surfaces_find_their_bytes() {
    let loaded = |instruction: &str| results(instruction).1;
    assert_eq!(loaded("suld.b.2d.b32.trap {%r4}, [%rd3, {%r2, %r1}];")[..2], [21, 99]);
    assert_eq!(loaded("suld.b.2d.ca.v2.b32.trap {%r4, %r5}, [%rd3, {%r2, %r1}];")[..2], [21, 1021]);
    let wide = "mov.u32 %r2, 16; suld.b.3d.v4.b32.zero {%r4, %r5, %r6, %r7}, [%rd3, {%r2, %r1, %r0, %r0}];";
    assert_eq!(loaded(wide), [122, 1122, 123, 1123]);
    let long = "suld.b.a2d.b64.trap {%rd4}, [%rd3, {%r0, %r2, %r1, %r1}]; mov.b64 {%r4, %r5}, %rd4;";
    assert_eq!(loaded(long)[..2], [121, 1121]);
    let byte = ".reg .b16 %h; mov.u32 %r2, 13; suld.b.1d.b8.clamp {%h}, [%rd3, {%r2}]; cvt.u32.u16 %r4, %h;";
    assert_eq!(loaded(byte)[0], 1001 >> 8);
    assert_eq!(loaded("mov.u32 %r2, -4; suld.b.2d.b32.zero {%r4}, [%rd3, {%r2, %r1}];")[0], 0);
    assert_eq!(loaded("mov.u32 %r2, 96; suld.b.2d.b32.clamp {%r4}, [%rd3, {%r2, %r1}];")[0], 1023);
    let (ended, _, image) = results(
        "sust.b.2d.b32.trap [%rd3, {%r2, %r1}], {%r0};
        sust.b.a1d.v2.b32.zero [%rd3, {%r0, %r2}], {%r4, %r2};
        mov.u32 %r2, 4096; sust.b.2d.b32.zero [%rd3, {%r2, %r1}], {%r0};",
    );
    ended.unwrap();
    let changed: Vec<_> = (0..)
        .zip(&image)
        .filter(|(at, value)| {
            let texel = *at / 2;
            **value != 1000 * (at % 2) + 100 * (texel / 12) + 10 * (texel / 4 % 3) + texel % 4
        })
        .collect();
    assert_eq!(changed, [(2 * 9, &1), (2 * 13, &99), (2 * 13 + 1, &8)]);
}

#[test]
fn a_handle_that_nothing_has_ends_the_kernel() {
    for (instruction, what, handle) in [
        ("tex.1d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%rd3, {%r1}];", "texture", SURFACE),
        ("suld.b.1d.b32.zero {%r4}, [%rd2, {%r1}];", "surface", TEXTURE),
        ("mov.u64 %rd2, -1; sust.b.1d.b32.zero [%rd2, {%r1}], {%r4};", "surface", u64::MAX),
        ("mov.u64 %rd2, 0; tld4.a.2d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd2, {%f0, %f0}];", "texture", 0),
        ("txq.width.b32 %r4, [%rd3];", "texture", SURFACE),
        ("suq.width.b32 %r4, [%rd2];", "surface", TEXTURE),
    ] {
        let (ended, _, _) = results(instruction);
        let Err(Fault::NoObject { what: named, handle: given, .. }) = &ended else {
            panic!("{instruction}: {ended:?}")
        };
        assert_eq!((*named, *given), (what, handle), "{instruction}");
    }
}

#[test]
fn an_access_outside_of_a_surface_ends_the_kernel_or_goes_nowhere() {
    for x in ["-4", "32", "30", "0x7ffffffc", "0x80000000"] {
        let (ended, _, _) =
            results(&format!("mov.u32 %r2, {x}; sust.b.1d.b32.trap [%rd3, {{%r2}}], {{%r4}};"));
        assert!(matches!(ended, Err(Fault::OutsideSurface { surface: SURFACE, .. })), "{x}: {ended:?}");
    }
    let (ended, _, _) = results("mov.u32 %r2, 2; suld.b.1d.b32.trap {%r4}, [%rd3, {%r2}];");
    assert!(matches!(ended, Err(Fault::Misaligned { address: 2, size: 4, .. })), "{ended:?}");
}

#[test]
fn texels_of_memory_that_is_gone_end_the_kernel() {
    let source = kernel(&format!(
        "mov.u64 %rd2, {TEXTURE}; tex.1d.v4.u32.s32 {{%r4, %r5, %r6, %r7}}, [%rd2, {{%r0}}];"
    ));
    let device = Device::new(&[&source]);
    let address = device.zeros::<u32>(4);
    let image = Image { address, size: [4, 1, 1], row_pitch: 16, slice_pitch: 16 };
    let (slices, format) = (Slices::Depth, TexelFormat { channel: Channel::Unsigned32, channels: 1 });
    let texture = Texture { levels: Box::new([image]), slices, format, sampling: SAMPLING };
    let objects = Objects { texture, reference: u64::MAX - 9, surface: Surface { image, slices, format } };
    let launch = || {
        let params = Params::default().with(0_u64).with(0_u64);
        let (grid, block) = ([1; 3], [2, 1, 1]);
        let config = LaunchConfig {
            grid,
            block,
            cluster: None,
            dynamic_shared: 0,
            cooperative: false,
            priority: 0,
            params: &params.0,
        };
        device.loaded.launch("k", config, pool(), &objects)
    };
    launch().unwrap();
    device.space.free(address).unwrap();
    let ended = launch();
    assert!(matches!(&ended, Err(Fault::IllegalAddress { address: at, .. }) if *at == address), "{ended:?}");
}

#[test]
fn references_and_parameters_name_textures_too() {
    let text = |fetch: &str| {
        format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.global .texref old;\n
            .func (.param .b32 r) f(.param .b64 t) {{
                .reg .b32 %r<9>; mov.u32 %r1, 3;
                tex.1d.v4.u32.s32 {{%r4, %r5, %r6, %r7}}, [t, {{%r1}}]; st.param.b32 [r], %r4; ret; }}
            .visible .entry k(.param .u64 p, .param .u64 q) {{
                .reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u64 %rd0, [p]; mov.u32 %r1, 3;
                .param .b64 t; .param .b32 r;
                {fetch}
                st.global.u32 [%rd0], %r4; ret; }}"
        )
    };
    for fetch in [
        "tex.1d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [old, {%r1}];".to_owned(),
        "mov.u64 %rd1, old; tex.1d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%rd1, {%r1}];".to_owned(),
        format!("st.param.b64 [t], {TEXTURE}; call (r), f, (t); ld.param.b32 %r4, [r];"),
    ] {
        let (ended, out, _) = run(&text(&fetch));
        assert_eq!((ended, out[0]), (Ok(()), 3), "{fetch}");
    }
}

#[test]
fn what_fetches_and_surfaces_lack_is_refused_with_its_line() {
    for (instruction, reason) in [
        (
            "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, %rd1, {%f1, %f2}];",
            "a sampler apart from the texture",
        ),
        (
            "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f1, %f2}], {%r1, %r2};",
            "offsets of texels, and the comparison of depths",
        ),
        (
            "tex.2dms.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd0, {%r1, %r1, %r1, %r1}];",
            "textures of several samples",
        ),
        (
            "tex.2d.v2.f16x2.f32 {%r1, %r2}, [%rd0, {%f1, %f2}];",
            "a result of other than four numbers of 32 bits",
        ),
        (
            "tex.grad.2d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd0, {%r1, %r2}], {%r1, %r2}, {%r1, %r2};",
            "gradients, or a face of a cube, with coordinates that are integers",
        ),
        (
            "sust.p.2d.v4.b32.trap [%rd0, {%r1, %r2}], {%r1, %r2, %r3, %r4};",
            "stores that convert to the surface's format",
        ),
        ("txq.wonderful.b32 %r1, [%rd0];", "this query"),
        (
            "sured.b.add.2d.u32.trap [%rd0, {%r1, %r2}], %r3;",
            "there is no entry for it in the instruction table",
        ),
    ] {
        let program =
            Program::compile(&[&kernel(&format!("\n{instruction}"))], &CompileOptions::default()).unwrap();
        let error = program.kernels()[0].unsupported.clone().expect("it can run");
        let CompileError::UnsupportedInstruction { line: 13, instruction: text, reason: why, .. } = error
        else {
            panic!("{instruction}: {error:?}")
        };
        assert_eq!((text.as_str(), why.as_str()), (instruction, reason));
    }
    for wrong in [
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f1}];",
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2}, [%rd0, {%f1, %f2}];",
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%r0, {%f1, %f2}];",
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0];",
        "tex.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f1}];",
        "suld.b.2d.v4.b64.trap {%rd0, %rd1, %rd2, %rd3}, [%rd0, {%r1, %r2}];",
        "suld.b.2d.f32.trap {%f1}, [%rd0, {%r1, %r2}];",
        "sust.b.cube.b32.trap [%rd0, {%r1, %r2, %r1, %r1}], {%r1};",
    ] {
        let refused = Program::compile(&[&kernel(wrong)], &CompileOptions::default());
        assert!(refused.is_err(), "{wrong}");
    }
}
