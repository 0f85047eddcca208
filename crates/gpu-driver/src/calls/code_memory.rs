//! Variables of loaded code: their names are read from the images, their addresses asked of the driver, which has no list
//! of them.
//!
//! The driver chooses the addresses when it loads code, and others in another process. So whoever makes a session again
//! elsewhere finds each variable by its name, and must know which words hold addresses.

use crate::context;
use crate::driver::Driver;
use crate::fatbin::{ChosenCode, chosen_code};
use causeway_api::handle::{Context, Native};
use causeway_api::image::{Form, Variable, Variables, cubin_variables, ptx_variables, split_linked};
use causeway_api::sys::CUresult;
use causeway_gpu::CuResult;
use causeway_gpu::calls::ModuleCalls as _;
use causeway_gpu::device_code::{CodeMemory, CodeOwner, CodeVariable, LoadedCode};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The most words of a variable that hold addresses: tables of a compiler are shorter.
const MAX_POINTERS: usize = 1 << 16;

/// What the variables of an image are read from.
struct Listed {
    variables: Variables,
    /// Whether it is known that the driver has loaded this, and nothing else, so that all of it must be there.
    is_certain: bool,
}

impl Driver {
    pub(crate) fn find_code_memory(&self, loaded: &[LoadedCode<'_>]) -> Result<Vec<CodeMemory>, String> {
        let mut copies = Vec::new();
        for code in loaded {
            let contexts = match code.owner {
                CodeOwner::Module(_) => vec![code.context],
                CodeOwner::Library(_) => self.contexts.all(),
            };
            for context in contexts {
                let capability = context::within(self.functions, context, || self.capability());
                let capability =
                    capability.map_err(|status| driver_error("the device of a context", status))?;
                copies.push((code, context, capability));
            }
        }
        let lists = by_several_threads(&copies, |(code, _, capability)| list(code, *capability));
        let mut found = Vec::new();
        for ((code, context, _), listed) in copies.iter().zip(lists) {
            found.extend(self.memory_of(code, *context, listed?)?);
        }
        Ok(found)
    }

    /// The variables of code in a context; nothing where it has none, or is not for the context's device.
    fn memory_of(
        &self,
        code: &LoadedCode<'_>,
        context: Native<Context>,
        listed: Listed,
    ) -> Result<Option<CodeMemory>, String> {
        let Listed { variables, is_certain } = listed;
        if variables.uses_heap {
            return Err(
                "it has loaded code whose kernels call `malloc`, and the driver does not report their memory"
                    .to_owned(),
            );
        }
        let mut ask = |name: &str| {
            context::within(self.functions, context, || match code.owner {
                CodeOwner::Module(module) => self.module_global(module, name),
                CodeOwner::Library(library) => self.library_global(library, name),
            })
        };
        let variables = match locate(variables.list, is_certain, &mut ask)? {
            Some(variables) if !variables.is_empty() => variables,
            _ => return Ok(None),
        };
        tracing::debug!(
            owner = ?code.owner, image = code.image.len(), variables = variables.len(),
            first = format_args!("{:#x}", variables[0].address), "variables of loaded code"
        );
        for variable in variables.iter().take(40) {
            tracing::trace!(
                name = variable.name,
                address = format_args!("{:#x}", variable.address),
                bytes = variable.bytes,
                pointers = variable.pointers.len(),
                "variable"
            );
        }
        Ok(Some(CodeMemory { owner: code.owner, context, ranges: ranges(&variables), variables }))
    }
}

/// Threads that read images at most. PyTorch has loaded some twenty when it trains, which take one thread 0.4 s to unpack and
/// read, and the program stands still meanwhile.
const MAX_THREADS: usize = 8;

/// What `work` makes of each item, in their order.
fn by_several_threads<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let claim_all = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(item)));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(items.len());
    let mut done = thread::scope(|scope| {
        let start =
            |_| thread::Builder::new().name("causeway-code".to_owned()).spawn_scoped(scope, claim_all);
        // Where no thread can be started it takes longer.
        let helpers: Vec<_> = (1..threads).filter_map(|number| start(number).ok()).collect();
        let mut done = claim_all();
        for helper in helpers {
            done.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn driver_error(what: &str, status: CUresult) -> String {
    format!("the driver does not report {what} (error {})", status.0)
}

/// The variables of an image, as far as it is for a device of a compute capability, times ten.
fn list(code: &LoadedCode<'_>, capability: u32) -> Result<Listed, String> {
    let parts = match Form::from_number(code.form) {
        Some(Form::Linked) => split_linked(code.image).unwrap_or_default(),
        _ => vec![code.image],
    };
    let mut listed = Listed { variables: Variables::default(), is_certain: parts.len() == 1 };
    for part in parts {
        let chosen = chosen_code(part, capability).ok_or_else(|| {
            "it has loaded code of a form whose variables cannot be listed (neither a cubin nor PTX)"
                .to_owned()
        })?;
        listed.is_certain &= chosen.len() <= 1;
        for code in chosen {
            let variables = match &code {
                ChosenCode::Cubin(bytes) => cubin_variables(bytes),
                ChosenCode::Ptx(text) => core::str::from_utf8(text).ok().and_then(ptx_variables),
            };
            let variables =
                variables.ok_or_else(|| "it has loaded code whose variables cannot be listed".to_owned())?;
            listed.variables.uses_heap |= variables.uses_heap;
            listed.variables.list.extend(variables.list);
        }
    }
    Ok(listed)
}

/// Where variables lie, in the order in which they are given; nothing where the driver says that the code is for other devices.
///
/// The driver lays out the variables of a section in an order of its own (580.159, 2026-11-29), so that each has to be asked
/// for. It names those that only one file sees, too.
fn locate(
    list: Vec<Variable>,
    is_certain: bool,
    ask: &mut dyn FnMut(&str) -> CuResult<(u64, usize)>,
) -> Result<Option<Vec<CodeVariable>>, String> {
    let mut located = Vec::with_capacity(list.len());
    let mut names = HashSet::new();
    for variable in list {
        let name = variable.name;
        if !names.insert(name.clone()) {
            // Of parts that were linked several have the same variable.
            if !is_certain || is_literal(&name) {
                continue;
            }
            return Err(format!(
                "it has loaded code with two variables `{name}`, of which the driver reports only one address"
            ));
        }
        let (address, bytes) = match ask(&name) {
            Ok((address, bytes)) => (address, bytes as u64),
            Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU) => return Ok(None),
            Err(CUresult::CUDA_ERROR_NOT_FOUND) if !is_certain || is_literal(&name) => continue,
            Err(CUresult::CUDA_ERROR_NOT_FOUND) => {
                return Err(format!(
                    "the driver does not report the address of the variable `{name}` of loaded code"
                ));
            }
            Err(status) => {
                return Err(driver_error(&format!("the variable `{name}` of loaded code"), status));
            }
        };
        let pointers = variable.pointers.unwrap_or_else(|| (0..bytes / 8).map(|word| word * 8).collect());
        if pointers.len() > MAX_POINTERS {
            return Err(format!(
                "the variable `{name}` of loaded code may hold more addresses than can be changed"
            ));
        }
        located.push(CodeVariable { name, address, bytes, pointers });
    }
    Ok(Some(located))
}

/// Whether a variable is text or numbers that the compiler has put there, which nothing changes.
fn is_literal(name: &str) -> bool {
    name.starts_with("$str") || name.starts_with("__unnamed_")
}

/// What has to be read to have all variables: each by itself, since the driver refuses copies that go from one to the next
/// (`CUDA_ERROR_INVALID_VALUE`; 580.159 on an H200, 2026-11-29). Names of one variable have one range.
fn ranges(variables: &[CodeVariable]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> =
        variables.iter().map(|variable| (variable.address, variable.bytes)).collect();
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (address, bytes) in all {
        match merged.last_mut() {
            Some((start, length)) if address < *start + *length => {
                *length = (*length).max(address + bytes - *start);
            }
            _ => merged.push((address, bytes)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, section: u32, offset: u64, bytes: u64) -> Variable {
        let pointers = Some(Vec::new());
        Variable { name: name.to_owned(), section, offset, bytes, is_managed: false, pointers }
    }

    fn ask_of(known: &[(&str, u64, usize)]) -> impl FnMut(&str) -> CuResult<(u64, usize)> {
        move |name| {
            let found = known.iter().find(|(other, ..)| *other == name);
            found.map(|(_, address, bytes)| (*address, *bytes)).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
        }
    }

    #[test]
    fn every_variable_must_be_known_that_may_change() {
        let list = vec![variable("a", 3, 0, 4), variable("$str$1", 3, 8, 4), variable("c", 4, 16, 32)];
        let mut ask = ask_of(&[("a", 0x1000, 4), ("c", 0x1010, 32)]);
        let found = locate(list.clone(), true, &mut ask).unwrap().unwrap();
        assert_eq!(found.iter().map(|found| found.address).collect::<Vec<_>>(), [0x1000, 0x1010]);
        assert_eq!(ranges(&found), [(0x1000, 4), (0x1010, 32)]);
        let alias = CodeVariable { address: 0x1018, bytes: 8, ..found[1].clone() };
        assert_eq!(ranges(&[found[1].clone(), alias]), [(0x1010, 32)]);
        let unknown = locate(list.clone(), true, &mut ask_of(&[("a", 0x1000, 4)])).unwrap_err();
        assert!(unknown.contains("`c`"), "{unknown}");
        // Of several images some variables are those of others.
        let found = locate(list.clone(), false, &mut ask_of(&[("a", 0x1000, 4)])).unwrap().unwrap();
        assert_eq!(found.len(), 1);
        let twice = [list.clone(), vec![variable("a", 4, 0, 4)]].concat();
        assert!(locate(twice.clone(), true, &mut ask).unwrap_err().contains("two variables `a`"));
        assert_eq!(locate(twice, false, &mut ask).unwrap().unwrap().len(), 2);
        let other = &mut |_: &str| Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
        assert_eq!(locate(list, true, other), Ok(None));
    }

    #[test]
    fn results_of_several_threads_are_in_order() {
        let items: Vec<u32> = (0..1000).collect();
        assert_eq!(
            by_several_threads(&items, |item| item * 2),
            items.iter().map(|item| item * 2).collect::<Vec<_>>()
        );
        assert_eq!(by_several_threads(&[], |item: &u32| *item), Vec::<u32>::new());
    }

    #[test]
    fn addresses_in_initial_values_are_known_or_all_words_may_be_some() {
        let list = vec![Variable { pointers: None, ..variable("names", 0, 0, 0) }];
        let found = locate(list, true, &mut ask_of(&[("names", 0x1000, 20)])).unwrap().unwrap();
        assert_eq!((found[0].bytes, &found[0].pointers[..]), (20, &[0, 8][..]));
    }
}
