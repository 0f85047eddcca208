//! The device's `printf`: C's format language over the argument buffer that the compiler lays out.

use crate::memory::AddressSpace;

/// Longest string that `%s` or a format may be.
const MAX_STRING_BYTES: usize = 1 << 20;
/// Largest width or precision that is obeyed.
const WIDEST_FIELD: usize = 4096;

/// Bytes that one call prints at most; CUDA's own buffer for all calls of a launch has 1 MiB. The rest is
/// lost, as it is there: a format of a few bytes can ask for any number of copies of a long string.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// Reads memory that a kernel points at.
///
/// Addresses outside of the space are refused; memory inside that is not mapped raises the signal any access
/// of the kernel would. A few bytes of the text read so far are lost then.
pub(crate) struct DeviceReader<'a> {
    pub(crate) space: &'a AddressSpace,
}

impl DeviceReader<'_> {
    /// A byte; the address, where it lies outside of the space.
    pub(crate) fn byte(&self, address: u64) -> Result<u8, u64> {
        if !self.space.contains(address) {
            return Err(address);
        }
        // SAFETY: the address lies in the space's own reservation, and this runs on a kernel's coroutine,
        // where touching a page without access ends the kernel. Other threads may write the byte meanwhile,
        // as on a GPU.
        Ok(unsafe { std::ptr::read_volatile(address as *const u8) })
    }

    /// The bytes before the NUL.
    pub(crate) fn string(&self, address: u64) -> Result<Vec<u8>, u64> {
        let mut bytes = Vec::new();
        while bytes.len() < MAX_STRING_BYTES {
            match self.byte(address.wrapping_add(bytes.len() as u64))? {
                0 => break,
                byte => bytes.push(byte),
            }
        }
        Ok(bytes)
    }

    fn number(&self, address: u64, size: u64) -> Result<u64, u64> {
        let mut value = 0;
        for index in 0..size {
            value |= u64::from(self.byte(address.wrapping_add(index))?) << (8 * index);
        }
        Ok(value)
    }
}

/// One conversion: `%-8.3lf`.
#[derive(Debug, Default, Clone)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    /// Bytes of an integer argument before promotion: 1, 2, 4 or 8.
    size: u32,
}

/// What a call printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Formatted {
    pub(crate) text: Vec<u8>,
    /// Arguments that the format asked for, those for `*` among them.
    pub(crate) arguments: u32,
}

/// The argument buffer, read in order; every argument is aligned to its size.
struct Arguments<'a> {
    reader: &'a DeviceReader<'a>,
    address: u64,
    /// How many were read.
    count: u32,
}

impl Arguments<'_> {
    fn next(&mut self, size: u64) -> Result<u64, u64> {
        self.address = self.address.checked_next_multiple_of(size).ok_or(self.address)?;
        let value = self.reader.number(self.address, size)?;
        self.address = self.address.wrapping_add(size);
        self.count += 1;
        Ok(value)
    }
}

/// Formats; `Err` is an address that cannot be read.
pub(crate) fn format(reader: &DeviceReader<'_>, format: u64, arguments: u64) -> Result<Formatted, u64> {
    let format = reader.string(format)?;
    let mut arguments = Arguments { reader, address: arguments, count: 0 };
    let mut output = Vec::with_capacity(format.len());
    let mut rest = format.as_slice();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            output.push(byte);
            continue;
        }
        let (conversion, letter, tail) = parse_conversion(rest, &mut arguments)?;
        rest = tail;
        convert(&mut output, &conversion, letter, &mut arguments)?;
        if output.len() >= MAX_OUTPUT_BYTES {
            output.truncate(MAX_OUTPUT_BYTES);
            break;
        }
    }
    Ok(Formatted { text: output, arguments: arguments.count })
}

fn parse_conversion<'f>(
    mut rest: &'f [u8],
    arguments: &mut Arguments<'_>,
) -> Result<(Conversion, u8, &'f [u8]), u64> {
    let mut conversion = Conversion { size: 4, ..Conversion::default() };
    loop {
        match rest.first() {
            Some(b'-') => conversion.left = true,
            Some(b'+') => conversion.plus = true,
            Some(b' ') => conversion.space = true,
            Some(b'#') => conversion.alternate = true,
            Some(b'0') => conversion.zeros = true,
            _ => break,
        }
        rest = &rest[1..];
    }
    let (width, tail) = parse_count(rest, arguments)?;
    rest = tail;
    if let Some(width) = width {
        conversion.left |= width < 0;
        conversion.width = (width.unsigned_abs() as usize).min(WIDEST_FIELD);
    }
    if rest.first() == Some(&b'.') {
        let (precision, tail) = parse_count(&rest[1..], arguments)?;
        rest = tail;
        let precision = precision.unwrap_or(0);
        conversion.precision = usize::try_from(precision).ok().map(|precision| precision.min(WIDEST_FIELD));
    }
    loop {
        match rest.first() {
            Some(b'h') => conversion.size = if conversion.size == 2 { 1 } else { 2 },
            Some(b'l' | b'j' | b'z' | b't' | b'q' | b'L') => conversion.size = 8,
            _ => break,
        }
        rest = &rest[1..];
    }
    let letter = rest.first().copied().unwrap_or(b'%');
    Ok((conversion, letter, rest.get(1..).unwrap_or_default()))
}

/// Digits, or `*` for an argument.
fn parse_count<'f>(rest: &'f [u8], arguments: &mut Arguments<'_>) -> Result<(Option<i32>, &'f [u8]), u64> {
    if rest.first() == Some(&b'*') {
        return Ok((Some(arguments.next(4)? as i32), &rest[1..]));
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let count = rest[..digits]
        .iter()
        .fold(0_i32, |count, digit| count.saturating_mul(10).saturating_add(i32::from(digit - b'0')));
    Ok(((digits > 0).then_some(count), &rest[digits..]))
}

fn convert(
    output: &mut Vec<u8>,
    conversion: &Conversion,
    letter: u8,
    arguments: &mut Arguments<'_>,
) -> Result<(), u64> {
    match letter {
        b'%' => output.push(b'%'),
        b'c' => {
            let character = arguments.next(4)? as u8;
            pad(output, conversion, b"", &[character], false);
        }
        b's' => {
            let address = arguments.next(8)?;
            let mut text =
                if address == 0 { b"(null)".to_vec() } else { arguments.reader.string(address)? };
            text.truncate(conversion.precision.unwrap_or(usize::MAX));
            pad(output, conversion, b"", &text, false);
        }
        b'p' => {
            let address = arguments.next(8)?;
            let text = if address == 0 { "(nil)".to_owned() } else { format!("{address:#x}") };
            pad(output, conversion, b"", text.as_bytes(), false);
        }
        b'd' | b'i' => {
            let raw = arguments.next(if conversion.size == 8 { 8 } else { 4 })?;
            let value = match conversion.size {
                1 => i64::from(raw as i8),
                2 => i64::from(raw as i16),
                4 => i64::from(raw as i32),
                _ => raw as i64,
            };
            let sign = sign_text(value < 0, conversion);
            integer(output, conversion, sign, &value.unsigned_abs().to_string());
        }
        b'u' | b'x' | b'X' | b'o' => {
            let raw = arguments.next(if conversion.size == 8 { 8 } else { 4 })?;
            let value = match conversion.size {
                1 => u64::from(raw as u8),
                2 => u64::from(raw as u16),
                _ => raw,
            };
            let (prefix, digits) = match letter {
                b'u' => ("", value.to_string()),
                b'o' => (if conversion.alternate && value != 0 { "0" } else { "" }, format!("{value:o}")),
                b'x' => (if conversion.alternate && value != 0 { "0x" } else { "" }, format!("{value:x}")),
                _ => (if conversion.alternate && value != 0 { "0X" } else { "" }, format!("{value:X}")),
            };
            integer(output, conversion, prefix, &digits);
        }
        b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
            let value = f64::from_bits(arguments.next(8)?);
            float(output, conversion, letter, value);
        }
        // CUDA prints what it does not know as it stands.
        other => output.extend([b'%', other]),
    }
    Ok(())
}

fn sign_text(negative: bool, conversion: &Conversion) -> &'static str {
    match (negative, conversion.plus, conversion.space) {
        (true, _, _) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        _ => "",
    }
}

fn integer(output: &mut Vec<u8>, conversion: &Conversion, sign: &str, digits: &str) {
    let digits = match conversion.precision {
        Some(0) if digits == "0" => String::new(),
        Some(precision) => format!("{digits:0>precision$}"),
        None => digits.to_owned(),
    };
    pad(output, conversion, sign.as_bytes(), digits.as_bytes(), conversion.precision.is_none());
}

/// Writes prefix and body, padded to the width: with zeros between them when that is asked for and allowed.
fn pad(output: &mut Vec<u8>, conversion: &Conversion, prefix: &[u8], body: &[u8], zeros_allowed: bool) {
    let missing = conversion.width.saturating_sub(prefix.len() + body.len());
    let zeros = zeros_allowed && conversion.zeros && !conversion.left;
    if !conversion.left && !zeros {
        output.resize(output.len() + missing, b' ');
    }
    output.extend_from_slice(prefix);
    if zeros {
        output.resize(output.len() + missing, b'0');
    }
    output.extend_from_slice(body);
    if conversion.left {
        output.resize(output.len() + missing, b' ');
    }
}

fn float(output: &mut Vec<u8>, conversion: &Conversion, letter: u8, value: f64) {
    let sign = sign_text(value.is_sign_negative() && !value.is_nan(), conversion);
    let magnitude = value.abs();
    let mut body = if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        "inf".to_owned()
    } else {
        let precision = conversion.precision.unwrap_or(6);
        match letter.to_ascii_lowercase() {
            b'f' => fixed(magnitude, precision, conversion.alternate),
            b'e' => exponential(magnitude, precision, conversion.alternate),
            b'g' => general(magnitude, precision.max(1), conversion.alternate),
            _ => hexadecimal(magnitude, conversion.precision),
        }
    };
    if letter.is_ascii_uppercase() {
        body.make_ascii_uppercase();
    }
    pad(output, conversion, sign.as_bytes(), body.as_bytes(), value.is_finite());
}

fn fixed(value: f64, precision: usize, point: bool) -> String {
    let mut text = format!("{value:.precision$}");
    if point && precision == 0 {
        text.push('.');
    }
    text
}

fn exponential(value: f64, precision: usize, point: bool) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let point = if point && precision == 0 { "." } else { "" };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}{point}e{sign}{:02}", exponent.abs())
}

fn general(value: f64, precision: usize, keep_zeros: bool) -> String {
    // The exponent after rounding to the wanted digits decides the notation.
    let rounded = format!("{value:.*e}", precision - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let text = if exponent < -4 || exponent >= precision as i32 {
        exponential(value, precision - 1, keep_zeros)
    } else {
        fixed(value, (precision as i32 - 1 - exponent) as usize, keep_zeros)
    };
    if keep_zeros || !text.contains('.') {
        return text;
    }
    let (digits, exponent) =
        text.split_once('e').map_or((text.as_str(), None), |(digits, rest)| (digits, Some(rest)));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    exponent.map_or_else(|| digits.to_owned(), |exponent| format!("{digits}e{exponent}"))
}

fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let mut fraction = bits & ((1 << 52) - 1);
    let mut leading = u64::from(exponent != 0);
    let exponent = match (exponent, fraction) {
        (0, 0) => 0,
        (0, _) => -1022,
        _ => exponent - 1023,
    };
    let digits = match precision {
        Some(precision) if precision < 13 => {
            let dropped = 4 * (13 - precision as u32);
            let whole = leading << 52 | fraction;
            let half = 1_u64 << (dropped - 1);
            let odd = whole >> dropped & 1;
            let rounded = (whole + half - 1 + odd) >> dropped;
            leading = rounded >> (4 * precision);
            fraction = rounded & ((1 << (4 * precision)) - 1);
            if precision == 0 { String::new() } else { format!("{fraction:0precision$x}") }
        }
        Some(precision) => format!("{fraction:013x}{:0<1$}", "", precision - 13),
        None => format!("{fraction:013x}").trim_end_matches('0').to_owned(),
    };
    let point = if digits.is_empty() { "" } else { "." };
    format!("0x{leading}{point}{digits}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str, arguments: &[u8]) -> Formatted {
        let space = AddressSpace::new(1 << 20).unwrap();
        let (format_at, arguments_at) =
            (space.allocate(4096, 16).unwrap(), space.allocate(4096, 16).unwrap());
        space.write(format_at, text.as_bytes()).unwrap();
        space.write(arguments_at, arguments).unwrap();
        let reader = DeviceReader { space: &space };
        format(&reader, format_at, arguments_at).unwrap()
    }

    fn printed(text: &str, arguments: &[u8]) -> String {
        String::from_utf8(formatted(text, arguments).text).unwrap()
    }

    fn one_double(format: &str, value: f64) -> String {
        printed(format, &value.to_le_bytes())
    }

    #[test]
    fn integers_follow_c() {
        for (format, value, expected) in [
            ("%d|", -5_i64, "-5|"),
            ("%5d|", 42, "   42|"),
            ("%-5d|", 42, "42   |"),
            ("%05d|", -42, "-0042|"),
            ("%+d|", 7, "+7|"),
            ("% d|", 7, " 7|"),
            ("%.3d|", 7, "007|"),
            ("%u|", -1, "4294967295|"),
            ("%x %%|", 255, "ff %|"),
            ("%#X|", 255, "0XFF|"),
            ("%#o|", 8, "010|"),
            ("%hhd|", 255, "-1|"),
            ("%lld|", i64::MIN, "-9223372036854775808|"),
            ("%c|", 65, "A|"),
            ("%p|", 0x1234, "0x1234|"),
        ] {
            assert_eq!(printed(format, &value.to_le_bytes()), expected, "{format}");
        }
    }

    #[test]
    fn floating_point_follows_c() {
        for (format, value, expected) in [
            ("%f", 3.5, "3.500000"),
            ("%.2f", -0.375, "-0.38"),
            ("%8.3f|", 3.1234, "   3.123|"),
            ("%08.3f|", -3.1234, "-003.123|"),
            ("%e", 12345.678, "1.234568e+04"),
            ("%.0e", 5e-10, "5e-10"),
            ("%g", 0.0001, "0.0001"),
            ("%g", 0.00001, "1e-05"),
            ("%g", 1e6, "1e+06"),
            ("%g", 123456.0, "123456"),
            ("%g", 0.0, "0"),
            ("%G", 1e-10, "1E-10"),
            ("%a", 1.5, "0x1.8p+0"),
            ("%f", f64::INFINITY, "inf"),
            ("%5.1f|", f64::NAN, "  nan|"),
        ] {
            assert_eq!(one_double(format, value), expected, "{format}");
        }
    }

    #[test]
    fn arguments_are_aligned_to_their_size_and_stars_are_read() {
        let mut arguments = vec![0_u8; 32];
        arguments[0..4].copy_from_slice(&6_i32.to_le_bytes());
        arguments[8..16].copy_from_slice(&2.5_f64.to_le_bytes());
        arguments[16..20].copy_from_slice(&9_i32.to_le_bytes());
        assert_eq!(printed("%*.1f %d", &arguments), "   2.5 9");
    }

    #[test]
    fn arguments_are_counted() {
        for (format, expected) in [
            ("", 0),
            ("nothing to convert, 100%%\n", 0),
            ("%d", 1),
            ("%d and %f", 2),
            ("%*.*f|%c|%%|%s", 5),
            ("%y", 0),
        ] {
            assert_eq!(formatted(format, &[0; 64]).arguments, expected, "{format}");
        }
    }

    #[test]
    fn addresses_outside_of_the_space_are_reported() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let reader = DeviceReader { space: &space };
        assert_eq!(format(&reader, 0x10, 0), Err(0x10));
    }
}
