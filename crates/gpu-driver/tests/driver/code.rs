//! Device code of the steps, as PTX, and its packing into fat binaries.

use causeway_api::image::sample::fatbin_around;

/// `add` (vectors), `spin` (for some nanoseconds), `increment` (a counter) and the variable `table`.
pub const BASICS: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 table[4] = {11, 22, 33, 44};

.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 count)
{
    .reg .pred %outside;
    .reg .b32 %index, %size, %block, %count;
    .reg .f32 %x, %y;
    .reg .b64 %a, %b, %c, %offset;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %index, %tid.x;
    mad.lo.s32 %index, %block, %size, %index;
    ld.param.u32 %count, [count];
    setp.ge.u32 %outside, %index, %count;
    @%outside bra end;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u64 %c, [c];
    mul.wide.u32 %offset, %index, 4;
    add.s64 %a, %a, %offset;
    add.s64 %b, %b, %offset;
    add.s64 %c, %c, %offset;
    ld.global.f32 %x, [%a];
    ld.global.f32 %y, [%b];
    add.f32 %x, %x, %y;
    st.global.f32 [%c], %x;
end:
    ret;
}

.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %early;
    .reg .b64 %start, %now, %wanted;
    ld.param.u64 %wanted, [nanoseconds];
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.s64 %now, %now, %start;
    setp.lt.u64 %early, %now, %wanted;
    @%early bra again;
    ret;
}

.visible .entry increment(.param .u64 counter)
{
    .reg .b32 %before;
    .reg .b64 %counter;
    ld.param.u64 %counter, [counter];
    atom.global.add.u32 %before, [%counter], 1;
    ret;
}
";

/// `speak(number)` prints \"the number is ..\" and a line end.
pub const SPEAKING: &str = "
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 format[18] = {116, 104, 101, 32, 110, 117, 109, 98, 101, 114, 32, 105, 115, 32, 37, 100, 10, 0};

.visible .entry speak(.param .u32 number)
{
    .local .align 8 .b8 frame[8];
    .reg .b32 %number, %written;
    .reg .b64 %frame, %arguments, %format;
    mov.u64 %frame, frame;
    cvta.local.u64 %arguments, %frame;
    ld.param.u32 %number, [number];
    st.local.u32 [%frame], %number;
    mov.u64 %format, format;
    cvta.global.u64 %format, %format;
    {
        .param .b64 first;
        .param .b64 second;
        .param .b32 result;
        st.param.b64 [first], %format;
        st.param.b64 [second], %arguments;
        call.uni (result), vprintf, (first, second);
        ld.param.b32 %written, [result];
    }
    ret;
}
";

/// A part of a linked program: `store_twice(address, value)`, which calls `twice` of the other part.
pub const CALLER: &str = "
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 result) twice(.param .b32 value);

.visible .entry store_twice(.param .u64 address, .param .u32 value)
{
    .reg .b32 %value;
    .reg .b64 %address;
    ld.param.u64 %address, [address];
    ld.param.u32 %value, [value];
    {
        .param .b32 argument;
        .param .b32 result;
        st.param.b32 [argument], %value;
        call.uni (result), twice, (argument);
        ld.param.b32 %value, [result];
    }
    st.global.u32 [%address], %value;
    ret;
}
";

/// The other part.
pub const CALLED: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .func (.param .b32 result) twice(.param .b32 value)
{
    .reg .b32 %value;
    ld.param.b32 %value, [value];
    add.s32 %value, %value, %value;
    st.param.b32 [result], %value;
    ret;
}
";

/// A fat binary with one entry, as `nvcc -rdc=true --compress-mode=none` writes it: the options say that PTX
/// is to be compiled to relocatable code.
fn fatbin(kind: u16, architecture: u32, payload: &[u8]) -> Vec<u8> {
    const OPTIONS: &[u8; 16] = b"--compile-only  ";
    let mut payload = payload.to_vec();
    payload.resize(payload.len().next_multiple_of(8), 0);
    let mut entry = vec![0; 0x60];
    entry[0..4].copy_from_slice(&(u32::from(kind) | 0x0101_0000).to_le_bytes());
    entry[4..8].copy_from_slice(&0x60u32.to_le_bytes());
    entry[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    entry[20..24].copy_from_slice(&0x40u32.to_le_bytes());
    entry[24..28].copy_from_slice(&[0, 0, 7, 0]);
    entry[28..32].copy_from_slice(&architecture.to_le_bytes());
    entry[40] = 0x11;
    entry[0x40..0x48].copy_from_slice(&(0x48u64 | (OPTIONS.len() as u64) << 32).to_le_bytes());
    entry[0x48..0x58].copy_from_slice(OPTIONS);
    entry.extend(payload);
    fatbin_around(&entry)
}

/// What a client sends for a program linked for a device that nobody has, from the two parts.
pub fn linked_program() -> Vec<u8> {
    let elsewhere = fatbin(2, 10, b"code for an old device");
    [elsewhere, fatbin(1, 70, CALLER.as_bytes()), fatbin(1, 70, CALLED.as_bytes())].concat()
}

/// One parameter buffer from its parts, each aligned to its size.
pub fn parameters(parts: &[&[u8]]) -> Vec<u8> {
    let mut buffer = Vec::new();
    for part in parts {
        buffer.resize(buffer.len().next_multiple_of(part.len()), 0);
        buffer.extend_from_slice(part);
    }
    buffer
}
