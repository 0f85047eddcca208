//! Loaded code of a session: addresses of its variables, here and in the worker that goes on with it.
//!
//! Back ends that load code where it was before have nothing to do here. For others each variable is found by its name. It
//! should lie where it lay, for which NVIDIA's driver gets hints (`reservations` of its back end). Where it does not, kernels
//! take its new address from the code. Addresses of variables that were put into other variables by the compiler are known,
//! and changed; anything else in device memory that looks like the address of a variable which is elsewhere is refused, and
//! so is what the program has asked for.

use std::sync::Arc;

use causeway_api::calls::Request;
use causeway_api::handle::{Context, Handle, Library, Module, Native};
use causeway_gpu::device_code::{CodeMemory, CodeOwner, CodeVariable, LoadedCode};
use core::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::memory;
use crate::state_file::{CodeRecord, VariableRecord};
use crate::worker::engine::Engine;
use crate::worker::session::{Session, describe};

/// Bytes of an address.
const WORD: usize = 8;

/// Where the variables of a session's code lie, by the client's handles.
///
/// # Errors
/// Why that is not known, or cannot be carried, for people.
pub fn find(engine: &Arc<Engine>) -> Result<Vec<CodeRecord>, String> {
    let session = engine.session();
    let entries = engine.journal().code();
    let images: Vec<_> = entries
        .iter()
        .map(|entry| entry.image.as_ref().map(|image| image.contents()).unwrap_or_default())
        .collect();
    let objects = session.objects();
    let mut loaded = Vec::new();
    for (entry, image) in entries.iter().zip(&images) {
        let context = objects.native(Handle::<Context>::from_value(entry.context)).unwrap_or(Native::NULL);
        let found = match Request::decode(entry.opcode, &entry.arguments) {
            Ok(Request::module_load(load)) => {
                objects.native(load.module).map(|module| (CodeOwner::Module(module), load.form))
            }
            Ok(Request::library_load(load)) => {
                objects.native(load.library).map(|library| (CodeOwner::Library(library), load.form))
            }
            _ => continue,
        };
        // What could not be loaded has no variables.
        if let Ok((owner, form)) = found {
            loaded.push(LoadedCode { owner, context, form, image });
        }
    }
    session.gpu().code_memory(&loaded).map(|found| records(session, &found))
}

fn records(session: &Session, found: &[CodeMemory]) -> Vec<CodeRecord> {
    let objects = session.objects();
    let mut contexts = HashMap::new();
    for handle in objects.handles::<Context>() {
        if let Ok(native) = objects.native(handle) {
            contexts.insert(native.value(), handle.value());
        }
    }
    let (mut modules, mut libraries) = (HashMap::new(), HashMap::new());
    for handle in objects.handles::<Module>() {
        if let Ok(native) = objects.native(handle) {
            modules.insert(native.value(), handle.value());
        }
    }
    for handle in objects.handles::<Library>() {
        if let Ok(native) = objects.native(handle) {
            libraries.insert(native.value(), handle.value());
        }
    }
    let of = |memory: &CodeMemory| {
        let (owner, is_library) = match memory.owner {
            CodeOwner::Module(module) => (modules.get(&module.value()), false),
            CodeOwner::Library(library) => (libraries.get(&library.value()), true),
        };
        let context = *contexts.get(&memory.context.value())?;
        let variables = memory.variables.iter().map(record).collect();
        Some(CodeRecord { owner: *owner?, is_library, context, ranges: memory.ranges.clone(), variables })
    };
    found.iter().filter_map(of).collect()
}

fn record(variable: &CodeVariable) -> VariableRecord {
    VariableRecord {
        name: variable.name.clone(),
        address: variable.address,
        bytes: variable.bytes,
        pointers: variable.pointers.iter().map(|at| (*at, 0)).collect(),
    }
}

/// Notes what the words hold that held addresses when the code was loaded.
///
/// # Errors
/// When the device does not give them, with the address.
pub fn read_pointers(session: &Session, code: &mut [CodeRecord]) -> Result<(), (u64, String)> {
    for code in code {
        let context = Handle::from_value(code.context);
        for variable in &mut code.variables {
            for (at, value) in &mut variable.pointers {
                let (address, mut word) = (variable.address.saturating_add(*at), [0; WORD]);
                memory::read(session, context, address, &mut word)
                    .map_err(|error| (address, describe(error)))?;
                *value = u64::from_le_bytes(word);
            }
        }
    }
    Ok(())
}

/// A variable that was loaded anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Relocated {
    /// Where it was.
    before: u64,
    /// Where it is.
    now: u64,
    bytes: u64,
}

/// Where the variables of a session lie now that lay elsewhere before.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Relocation {
    /// All variables, in the order of their former addresses.
    variables: Vec<Relocated>,
    /// Words to be written when everything else has been: context, address, value.
    pointers: Vec<(u64, u64, u64)>,
    /// Where these were.
    pointers_before: BTreeSet<u64>,
    has_moved: bool,
}

/// Why the variables of a session cannot be found again; what is to be said.
#[derive(Debug, PartialEq, Eq)]
pub enum NotFound {
    /// A module or library has other variables, or none.
    Variables(u64),
    /// A variable holds the address of a function, which is another one here.
    Function(String),
}

impl Relocation {
    /// Compares what another worker had with what is there now, of which words are read by `read`.
    ///
    /// # Errors
    /// What differs.
    pub fn new(
        before: &[CodeRecord],
        now: &[CodeRecord],
        mut read: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Result<Self, NotFound> {
        let mut relocation = Self::default();
        let mut pointers = Vec::new();
        for known in before {
            let found = now.iter().find(|found| found.is_of_the_same(known));
            let found = found.ok_or(NotFound::Variables(known.owner))?;
            if known.variables.is_empty() {
                // Those that are found by their names alone have names.
                if !found.variables.is_empty() || known.ranges != found.ranges {
                    return Err(NotFound::Variables(known.owner));
                }
                continue;
            }
            if known.variables.len() != found.variables.len() {
                return Err(NotFound::Variables(known.owner));
            }
            for (variable, here) in known.variables.iter().zip(&found.variables) {
                if variable.name != here.name || variable.bytes != here.bytes {
                    return Err(NotFound::Variables(known.owner));
                }
                relocation.has_moved |= variable.address != here.address;
                let (before, now, bytes) = (variable.address, here.address, variable.bytes);
                relocation.variables.push(Relocated { before, now, bytes });
                for (at, value) in &variable.pointers {
                    if at.checked_add(WORD as u64).is_none_or(|end| end > bytes) {
                        return Err(NotFound::Variables(known.owner));
                    }
                    pointers.push((known.context, now.wrapping_add(*at), *value, &variable.name));
                    relocation.pointers_before.insert(before.wrapping_add(*at));
                }
            }
        }
        relocation.variables.sort_unstable_by_key(|variable| (variable.before, Reverse(variable.bytes)));
        // Names of one variable.
        relocation.variables.dedup_by(|alias, known| {
            let inner = alias.before - known.before;
            inner.saturating_add(alias.bytes) <= known.bytes && alias.now == known.now.wrapping_add(inner)
        });
        for (context, address, value, name) in pointers {
            let value = match relocation.now(value) {
                Some(now) => now,
                None if value == 0 || read(context, address) == Some(value) => value,
                None => return Err(NotFound::Function(name.clone())),
            };
            relocation.pointers.push((context, address, value));
        }
        Ok(relocation)
    }

    /// The variable in which an address lay before, or right behind which.
    fn at(&self, address: u64) -> Option<Relocated> {
        let behind = self.variables.partition_point(|variable| variable.before <= address);
        let variable = self.variables.get(behind.checked_sub(1)?)?;
        (address - variable.before <= variable.bytes).then_some(*variable)
    }

    /// Whether a variable lay at an address.
    pub fn is_of_code(&self, address: u64) -> bool {
        self.at(address).is_some_and(|variable| address - variable.before < variable.bytes)
    }

    /// Where what lay at an address lies now, if that was one of a variable.
    fn now(&self, address: u64) -> Option<u64> {
        self.at(address).map(|variable| variable.now.wrapping_add(address - variable.before))
    }

    /// The parts of the variables that lay in `bytes` bytes from `start` on: where they lay, how many bytes they are, and
    /// where they are now. No part is of two variables, since a driver may refuse such a copy.
    pub fn parts(&self, start: u64, bytes: u64) -> Vec<(u64, usize, u64)> {
        let end = start.saturating_add(bytes);
        let first = self
            .variables
            .partition_point(|variable| variable.before.saturating_add(variable.bytes) <= start);
        let mut parts = Vec::new();
        for variable in self.variables[first.min(self.variables.len())..]
            .iter()
            .take_while(|variable| variable.before < end)
        {
            let from = variable.before.max(start);
            let to = variable.before.saturating_add(variable.bytes).min(end);
            if from >= to {
                continue;
            }
            let now = variable.now.wrapping_add(from - variable.before);
            parts.push((from, (to - from) as usize, now));
        }
        parts
    }

    /// The first word among the bytes at an address that may be the address of a variable which lies elsewhere now: where it
    /// is, and what. Words that are known to be addresses are not meant.
    pub fn suspect(&self, start: u64, bytes: &[u8]) -> Option<(u64, u64)> {
        if !self.has_moved {
            return None;
        }
        let (first, last) = (self.variables.first()?.before, self.variables.last()?);
        let span = last.before.saturating_add(last.bytes) - first;
        let skipped = (start.wrapping_neg() as usize) % WORD;
        for (index, word) in bytes.get(skipped..)?.chunks_exact(WORD).enumerate() {
            let value = u64::from_le_bytes(word.try_into().expect("chunks of a word have its size"));
            if value.wrapping_sub(first) > span {
                continue;
            }
            let has_moved = self.at(value).is_some_and(|variable| variable.before != variable.now);
            let address = start + (skipped + index * WORD) as u64;
            if has_moved && !self.pointers_before.contains(&address) {
                return Some((address, value));
            }
        }
        None
    }

    /// How many variables have to be found by their names.
    pub fn count(&self) -> usize {
        self.variables.len()
    }

    /// A variable that has another address than before, and both.
    pub fn first_moved(&self) -> Option<(u64, u64)> {
        let moved = self.variables.iter().find(|variable| variable.before != variable.now)?;
        Some((moved.before, moved.now))
    }

    /// Words that hold addresses, to be written when everything else has been: context, address, value.
    pub fn pointers(&self) -> &[(u64, u64, u64)] {
        &self.pointers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::slice::from_ref;

    /// Name, address, size and pointers of a variable.
    type Sample<'a> = (&'a str, u64, u64, &'a [(u64, u64)]);

    fn code(variables: &[Sample<'_>]) -> CodeRecord {
        let variables = variables.iter().map(|(name, address, bytes, pointers)| VariableRecord {
            name: (*name).to_owned(),
            address: *address,
            bytes: *bytes,
            pointers: pointers.to_vec(),
        });
        CodeRecord {
            owner: 1,
            is_library: true,
            context: 2,
            ranges: vec![(0x1000, 0x100)],
            variables: variables.collect(),
        }
    }

    #[test]
    fn variables_are_found_again_by_name_and_their_parts_where_they_lie_now() {
        let before = code(&[("a", 0x1000, 8, &[]), ("b", 0x1008, 8, &[]), ("c", 0x1020, 4, &[])]);
        let now = code(&[("a", 0x5000, 8, &[]), ("b", 0x5008, 8, &[]), ("c", 0x7000, 4, &[])]);
        let found = Relocation::new(from_ref(&before), from_ref(&now), |_, _| None).unwrap();
        assert_eq!(
            found.parts(0x1000, 0x100),
            [(0x1000, 8, 0x5000), (0x1008, 8, 0x5008), (0x1020, 4, 0x7000)]
        );
        assert_eq!(found.parts(0x1004, 8), [(0x1004, 4, 0x5004), (0x1008, 4, 0x5008)]);
        assert_eq!(found.parts(0x1010, 8), []);
        assert_eq!(
            [0xfff, 0x1000, 0x100f, 0x1010, 0x1020, 0x1024].map(|at| found.is_of_code(at)),
            [false, true, true, false, true, false]
        );
        let other = code(&[("a", 0x5000, 8, &[]), ("b", 0x5008, 8, &[]), ("d", 0x7000, 4, &[])]);
        let differs = |now: &[CodeRecord]| Relocation::new(from_ref(&before), now, |_, _| None);
        assert_eq!(differs(&[other]), Err(NotFound::Variables(1)));
        assert_eq!(differs(&[]), Err(NotFound::Variables(1)));
        assert_eq!(differs(&[CodeRecord { variables: Vec::new(), ..now }]), Err(NotFound::Variables(1)));
        // Without names, the addresses must be the same.
        let unnamed = CodeRecord { variables: Vec::new(), ..before };
        assert!(Relocation::new(from_ref(&unnamed), from_ref(&unnamed), |_, _| None).is_ok());
        let elsewhere = CodeRecord { ranges: vec![(0x2000, 0x100)], ..unnamed.clone() };
        assert_eq!(Relocation::new(&[unnamed], &[elsewhere], |_, _| None), Err(NotFound::Variables(1)));
    }

    #[test]
    fn words_that_hold_addresses_from_the_beginning_are_changed() {
        let pointers: &[(u64, u64)] = &[(0, 0x1104), (8, 0x9999), (16, 0)];
        let before = code(&[("names", 0x1000, 24, pointers), ("text", 0x1100, 8, &[])]);
        let now = code(&[("names", 0x5000, 24, pointers), ("text", 0x5200, 8, &[])]);
        let new = |there: u64| {
            Relocation::new(from_ref(&before), from_ref(&now), |context, address| {
                assert_eq!((context, address), (2, 0x5008));
                Some(there)
            })
        };
        // The second one is the same here, and so no address of something that has moved.
        let found = new(0x9999).unwrap();
        assert_eq!(found.pointers(), [(2, 0x5000, 0x5204), (2, 0x5008, 0x9999), (2, 0x5010, 0)]);
        assert_eq!(new(0x8888), Err(NotFound::Function("names".to_owned())));
    }

    #[test]
    fn what_looks_like_an_address_of_a_variable_that_has_moved_is_found() {
        let before = code(&[("here", 0x1000, 16, &[(8, 0x2004)]), ("moved", 0x2000, 16, &[])]);
        let now = code(&[("here", 0x1000, 16, &[(8, 0x2004)]), ("moved", 0x6000, 16, &[])]);
        let found = Relocation::new(from_ref(&before), &[now], |_, _| None).unwrap();
        let bytes = |values: [u64; 3]| values.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
        assert_eq!(found.suspect(0x10_0000, &bytes([0x1000, 0x1fff, 0x2011])), None);
        assert_eq!(found.suspect(0x10_0000, &bytes([5, 0x2010, 6])), Some((0x10_0008, 0x2010)));
        // At addresses that are no multiples of a word no address lies.
        assert_eq!(found.suspect(0x10_0004, &bytes([0x2000, 0, 0])), None);
        // This one is known, and is changed.
        assert_eq!(found.suspect(0x1000, &bytes([0, 0x2004, 0])), None);
        assert_eq!(found.pointers(), [(2, 0x1008, 0x6004)]);
        let same = Relocation::new(from_ref(&before), from_ref(&before), |_, _| None).unwrap();
        assert_eq!(same.suspect(0x10_0000, &bytes([0x2000; 3])), None);
    }
}
