//! Names of kernels as in their sources.

use std::borrow::Cow;

use cpp_demangle::{DemangleOptions, Symbol};

/// Longer names are left as they are.
const MAX_SYMBOL_BYTES: usize = 16 << 10;

/// The name of a kernel, with the arguments of its template and without its parameters; of one in another language than
/// C++, or that makes no sense, the name itself.
pub fn kernel_name(symbol: &str) -> Cow<'_, str> {
    if !symbol.starts_with("_Z") || symbol.len() > MAX_SYMBOL_BYTES {
        return symbol.into();
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let name = Symbol::new(symbol).ok().and_then(|parsed| parsed.demangle_with_options(&options).ok());
    name.filter(|name| !name.is_empty()).map_or(symbol.into(), Cow::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_the_names_of_their_sources() {
        assert_eq!(kernel_name("_Z4busyyPj"), "busy");
        assert_eq!(kernel_name("_Z3addIfLi4EEvPT_S1_"), "add<float, 4>");
        assert_eq!(
            kernel_name("_ZN2at6native12_GLOBAL__N_16kernelEv"),
            "at::native::(anonymous namespace)::kernel"
        );
        let long = format!("_Z{}", "1".repeat(MAX_SYMBOL_BYTES));
        for same in ["triton_poi_fused_add_0", "_Z", "_Zx", "", &long] {
            assert_eq!(kernel_name(same), same);
        }
    }
}
