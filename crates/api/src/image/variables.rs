//! Variables of device code, from a cubin's table of symbols or from PTX text: their names, and which of
//! their words hold addresses. Only headers, symbols, relocations and names are read.

use super::cubin::{Elf, FUNCTION, MAX_NAME_BYTES, long, text, u32_at};

/// A symbol whose section has a number that does not fit (`SHN_XINDEX`).
const SECTION_ELSEWHERE: u16 = 0xffff;

/// The type of a symbol that is a variable (`STT_OBJECT`).
const OBJECT: u8 = 1;
/// What the byte `st_other` of a variable declared `__managed__` has set, as nvcc 13.0 writes it.
const MANAGED: u8 = 0x04;
/// The type of a section with relocations (`SHT_RELA`), and bytes of each.
const RELOCATIONS: u32 = 4;
const RELOCATION_BYTES: usize = 24;
/// Bytes of an address.
const WORD: u64 = 8;

/// Sections whose symbols are variables that outlive a kernel: those of threads and blocks, and constants
/// that the compiler makes for itself, lie in others.
const SECTIONS: [&str; 3] = [".nv.global", ".nv.global.init", ".nv.constant3"];

/// The most variables of an image: no compiler makes as many, and those of a hostile file may overlap each other.
const MAX_VARIABLES: usize = 1 << 20;

/// A variable of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name, mangled as the compiler left it.
    pub name: String,
    /// Variables with the same number lie where their offsets say from one address on.
    pub section: u32,
    /// Its offset in its section.
    pub offset: u64,
    /// How many bytes it has; 0 where only who loads it knows.
    pub bytes: u64,
    /// Whether it is declared `__managed__`, and lies elsewhere.
    pub is_managed: bool,
    /// Where it holds addresses when it is loaded, from its beginning; nothing for anywhere.
    pub pointers: Option<Vec<u64>>,
}

/// What an image has besides its kernels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variables {
    /// Its variables.
    pub list: Vec<Variable>,
    /// Whether its kernels call `malloc`.
    pub uses_heap: bool,
}

/// The variables of a cubin; nothing when it is no ELF file of 64 bits, or a table is not where its header
/// says or larger than any.
pub fn cubin_variables(cubin: &[u8]) -> Option<Variables> {
    let elf = Elf::new(cubin)?;
    // With 65,280 sections or more the counts stand elsewhere, and symbols name their sections elsewhere.
    if elf.sections() == 0 {
        return None;
    }
    let section_names = elf.section_names()?;
    let has_variables = (0..elf.sections())
        .map(|index| Some(SECTIONS.contains(&text(section_names, u32_at(elf.section(index)?, 0)? as usize)?)))
        .collect::<Option<Vec<bool>>>()?;
    let mut found = Variables::default();
    elf.each_symbol(|symbol, names| {
        let (kind, at) = (symbol[4] & 0xf, u16::from_le_bytes([symbol[6], symbol[7]]));
        if kind == FUNCTION && at == 0 {
            found.uses_heap |= text(names, u32_at(symbol, 0)? as usize)? == "malloc";
        }
        if kind == OBJECT && at == SECTION_ELSEWHERE {
            return None;
        }
        let (offset, bytes) = (long(symbol, 8)? as u64, long(symbol, 16)? as u64);
        let is_variable = kind == OBJECT && has_variables.get(usize::from(at)) == Some(&true);
        if !is_variable || bytes == 0 {
            return Some(());
        }
        if found.list.len() == MAX_VARIABLES || offset.checked_add(bytes).is_none() {
            return None;
        }
        found.list.push(Variable {
            name: text(names, u32_at(symbol, 0)? as usize)?.to_owned(),
            section: at.into(),
            offset,
            bytes,
            is_managed: symbol[5] & MANAGED != 0,
            pointers: Some(Vec::new()),
        });
        Some(())
    })?;
    found.list.sort_by_key(|variable| (variable.section, variable.offset));
    for index in 0..elf.sections() {
        let table = elf.section(index)?;
        let of = u32_at(table, 44)?;
        if u32_at(table, 4)? != RELOCATIONS || has_variables.get(of as usize) != Some(&true) {
            continue;
        }
        for relocation in elf.content(table)?.chunks_exact(RELOCATION_BYTES) {
            let at = long(relocation, 0)? as u64;
            let behind = found.list.partition_point(|known| (known.section, known.offset) <= (of, at));
            let Some(variable) = behind.checked_sub(1).and_then(|index| found.list.get_mut(index)) else {
                continue;
            };
            let inner = at.wrapping_sub(variable.offset);
            if variable.section == of && inner.checked_add(WORD).is_some_and(|end| end <= variable.bytes) {
                variable.pointers.get_or_insert_default().push(inner);
            }
        }
    }
    Some(found)
}

/// The variables that PTX text declares outside of its functions; nothing when there are too many, or where
/// the text is not written as compilers write it: with comments of several lines, or several variables in one
/// statement.
pub fn ptx_variables(ptx: &str) -> Option<Variables> {
    let mut found = Variables::default();
    let (mut statement, mut depth) = (String::new(), 0_usize);
    if ptx.contains("/*") {
        return None;
    }
    for line in ptx.lines() {
        let line = line.split("//").next().unwrap_or_default();
        // A directive without an end, whose text is any.
        if line.trim_start().starts_with(".file") {
            continue;
        }
        found.uses_heap |= line.contains("malloc") && tokens(line).any(|token| token == "malloc");
        for character in line.chars() {
            match character {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let is_function = || tokens(&statement).any(|token| matches!(token, ".entry" | ".func"));
            match character {
                ';' if depth == 0 => {
                    found.list.extend(declared(&statement, found.list.len() as u32)?);
                    statement.clear();
                }
                '}' if depth == 0 && is_function() => statement.clear(),
                // Of initial values only the names matter; of functions nothing does.
                _ if statement.len() < MAX_NAME_BYTES * 4 => statement.push(character),
                _ => {}
            }
        }
        statement.push(' ');
        if found.list.len() > MAX_VARIABLES {
            return None;
        }
    }
    Some(found)
}

/// The variable that a statement declares, if it does; nothing where it declares several.
fn declared(statement: &str, number: u32) -> Option<Option<Variable>> {
    let (head, value) = statement.split_once('=').unwrap_or((statement, ""));
    let mut is_variable = false;
    for token in tokens(head) {
        match token {
            // References are no memory.
            ".entry" | ".func" | ".extern" | ".texref" | ".samplerref" | ".surfref" => return Some(None),
            ".global" | ".const" => is_variable = true,
            _ => {}
        }
    }
    if !is_variable {
        return Some(None);
    }
    let values_end = value.rfind('}').map_or(0, |end| end + 1);
    if head.contains(',') || value[values_end..].contains(',') {
        return None;
    }
    let head = head.split('[').next()?;
    let name = tokens(head).last()?;
    let is_managed = tokens(head).any(|token| token == ".managed");
    let is_name =
        |token: &str| token.starts_with(|first: char| first.is_alphabetic() || "_$%".contains(first));
    let pointers = if tokens(value).any(is_name) { None } else { Some(Vec::new()) };
    Some(Some(Variable { name: name.to_owned(), section: number, offset: 0, bytes: 0, is_managed, pointers }))
}

/// The names, directives and numbers of a text.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let is_of_word = |character: char| character.is_alphanumeric() || "_$%.".contains(character);
    text.split(move |character| !is_of_word(character)).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::sample::{SampleVariable, cubin, cubin_with};

    fn variable(name: &str, section: u32, offset: u64, bytes: u64, pointers: &[u64]) -> Variable {
        let pointers = Some(pointers.to_vec());
        Variable { name: name.to_owned(), section, offset, bytes, is_managed: false, pointers }
    }

    #[test]
    fn variables_are_found_with_the_words_that_are_relocated() {
        let sample = |name, offset, bytes, other| SampleVariable { name, offset, bytes, other };
        let list = [sample("table", 16, 32, 0), sample("counter", 0, 4, 0), sample("shared", 8, 4, MANAGED)];
        let found = cubin_variables(&cubin_with(&list, &[16, 40, 0, 44], false)).unwrap();
        let managed = Variable { is_managed: true, ..variable("shared", 3, 8, 4, &[]) };
        // What reaches beyond its variable is no address in it.
        let table = variable("table", 3, 16, 32, &[0, 24]);
        assert_eq!(found.list, [variable("counter", 3, 0, 4, &[]), managed, table]);
        assert!(!found.uses_heap && cubin_variables(&cubin_with(&[], &[], true)).unwrap().uses_heap);
        assert_eq!(cubin_variables(b"no cubin"), None);
    }

    #[test]
    fn damaged_cubins_are_none_and_nothing_outside_is_read() {
        let list = [SampleVariable { name: "table", offset: 0, bytes: 32, other: 0 }];
        let file = cubin_with(&list, &[8], true);
        for length in 0..file.len() {
            assert_eq!(cubin_variables(&file[..length]), None, "{length} bytes");
        }
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0xff;
            let _ = cubin_variables(&damaged);
        }
        let _ = cubin_variables(&cubin(&["_Z3addPf"], &["helper"]));
    }

    #[test]
    fn text_declares_variables_outside_of_functions() {
        let text = "
            .version 8.0
            .target sm_90 // .global .u32 commented;
            .address_size 64
            .extern .func  (.param .b64 func_retval0) vprintf (.param .b64 a);
            .extern .global .u32 elsewhere;
            .global .align 4 .b8 table[4000];
            .visible .const .align 4 .b8 values[8] = {1, 0, 0x10, 0, 2};
            .global .align 1 .b8 $str[6] = {97, 108};
            .global .align 8 .u64 names[2] = {generic($str), generic($str)};
            .global .attribute(.managed) .align 4 .u32 shared = 5;
            .visible .entry step(.param .u64 p) { .reg .b32 %r<3>; .shared .u32 s;
              { ld.global.u32 %r1, [table]; } ret; }
            .global .align 4 .f32 last = 0f40200000;";
        let found = ptx_variables(text).unwrap();
        let names: Vec<&str> = found.list.iter().map(|variable| &*variable.name).collect();
        assert_eq!(names, ["table", "values", "$str", "names", "shared", "last"]);
        let unknown: Vec<bool> = found.list.iter().map(|variable| variable.pointers.is_none()).collect();
        assert_eq!(unknown, [false, false, false, true, false, false]);
        assert!(found.list[4].is_managed && !found.list[3].is_managed && !found.uses_heap);
        for unreadable in [".global .u32 a, b;", "/* .global .u32 a; */", ".global .u32 a = 1, b = 2;"] {
            assert_eq!(ptx_variables(unreadable), None, "{unreadable}");
        }
        let text = ".file 1 \"a=b[\"\n.global .u32 a[2] = {1, 2};\n.global .texref t;";
        let names: Vec<_> = ptx_variables(text).unwrap().list.into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["a"]);
        assert!(ptx_variables(".func f() { call.uni (r), malloc, (p); }").unwrap().uses_heap);
    }
}
