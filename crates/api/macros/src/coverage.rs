//! The coverage table: every entry point, how it is carried out, and since when it exists.

use crate::entry::{Entry, Kind};
use proc_macro2::TokenStream;
use quote::quote;

pub fn expand(entries: &[Entry]) -> TokenStream {
    let rows = entries.iter().filter(|entry| !entry.operation).map(|entry| {
        let Entry { name, base, since, reason, header, .. } = entry;
        let arguments = entry.arguments.len();
        let kind = match entry.kind {
            Kind::Local => quote!(Kind::Local),
            Kind::Posted => quote!(Kind::Posted),
            Kind::Called => quote!(Kind::Called),
            Kind::Hand => quote!(Kind::Hand),
            Kind::Same => {
                let target = entry.target.as_ref().expect("the list gives every `same` entry its target");
                quote!(Kind::Same { target: #target })
            }
            Kind::Unsupported => quote!(Kind::Unsupported { reason: #reason }),
        };
        let per_thread = match &entry.per_thread {
            Some((suffix, since)) => {
                let symbol = format!("{name}_{suffix}");
                quote!(Some(PerThread { symbol: #symbol, since: #since }))
            }
            None => quote!(None),
        };
        quote! {
            Function { symbol: #name, header: #header, base: #base, since: #since, arguments: #arguments, kind: #kind, per_thread: #per_thread }
        }
    });
    quote! {
        /// Every entry point of the driver, in the order of the declaration list.
        pub static FUNCTIONS: &[Function] = &[#(#rows),*];
    }
}
