//! Opcodes and requests: what a command looks like on the wire.

use crate::entry::{Entry, Mode};
use crate::types::{ident, lifetime, marker, reply_part, reply_type, request_field};
use crate::{facts, numbers};
use proc_macro2::TokenStream;
use quote::quote;

pub fn expand(entries: &[Entry]) -> TokenStream {
    let wire = numbers::in_order(entries);
    let fingerprints = numbers::fingerprints();
    let structs = wire.iter().map(|entry| request(entry));
    let names: Vec<_> = wire.iter().map(|entry| ident(&entry.name)).collect();
    let texts = wire.iter().map(|entry| &entry.name);
    let numbers: Vec<_> = (0..wire.len() as u16).collect();
    let lifetimes: Vec<_> = wire.iter().map(|entry| lifetime(entry)).collect();
    let payloads = wire.iter().map(|entry| payload(entry));
    let named = wire.iter().map(|entry| named(entry));
    let made = wire.iter().map(|entry| made(entry));
    let posted = wire.iter().map(|entry| entry.is_posted());
    let facts = facts::expand(&wire);
    quote! {
        /// The number of a command on the wire: its line in `crates/api/list/commands.txt`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        #[allow(non_camel_case_types, missing_docs)]
        pub enum Opcode { #(#names = #numbers),* }

        impl Opcode {
            /// Every opcode in order.
            pub const ALL: &'static [Opcode] = &[#(Opcode::#names),*];

            /// The name that the declaration list gives the command.
            pub fn name(self) -> &'static str {
                const NAMES: &[&str] = &[#(#texts),*];
                NAMES[self as usize]
            }

            /// Whether the list declares the command as posted, that is without a reply.
            pub fn is_posted(self) -> bool {
                const POSTED: &[bool] = &[#(#posted),*];
                POSTED[self as usize]
            }
        }

        /// The commands that this build knows.
        pub const COMMANDS: ::causeway_wire::handshake::CommandTable =
            ::causeway_wire::handshake::CommandTable::new(&[#(#fingerprints),*]);

        #(#structs)*

        /// Any request, decoded.
        #[derive(Clone, Debug)]
        #[allow(non_camel_case_types, missing_docs, clippy::large_enum_variant)]
        pub enum Request<'a> { #(#names(#names #lifetimes)),* }

        impl<'a> Request<'a> {
            /// Decodes the arguments of the command `opcode`; left-over bytes are an error.
            pub fn decode(
                opcode: Opcode,
                bytes: &'a [u8],
            ) -> ::core::result::Result<Self, ::causeway_wire::codec::DecodeError> {
                let mut input = ::causeway_wire::codec::Decoder::new(bytes);
                let request = match opcode { #(Opcode::#names => Self::#names(input.value()?)),* };
                input.finish()?;
                Ok(request)
            }

            /// Whether the command works with an object that `predicate` picks by its handle's value.
            pub fn names(&self, predicate: impl Fn(u64) -> bool) -> bool {
                match self { #(Self::#names(_request) => #named),* }
            }

            /// Calls `each` with the value of the handle of every object that the command makes.
            pub fn makes(&self, mut each: impl FnMut(u64)) {
                match self { #(Self::#names(_request) => { #made }),* }
            }

            /// The bulk data that must be there before the command can be carried out.
            pub fn payload(&self) -> Option<::causeway_api::types::Payload<'a>> {
                match self { #(Self::#names(_request) => #payloads),* }
            }
        }

        #facts
    }
}

fn request(entry: &Entry) -> TokenStream {
    let name = ident(&entry.name);
    let lifetime = lifetime(entry);
    let (fields, types): (Vec<_>, Vec<_>) = entry
        .arguments
        .iter()
        .filter_map(|argument| Some((ident(&argument.name), request_field(argument)?)))
        .unzip();
    let parts: Vec<_> = entry.arguments.iter().filter_map(reply_part).collect();
    let reply = reply_type(&parts);
    let text = format!("Request of `{}`.", entry.name);
    let stream = stream(entry);
    let elided = if lifetime.is_empty() { quote!() } else { quote!(<'_>) };
    quote! {
        #[doc = #text]
        #[derive(Clone, Debug)]
        #[allow(non_camel_case_types, non_snake_case, missing_docs)]
        pub struct #name #lifetime { #(pub #fields: #types),* }

        impl Call for #name #elided {
            const OPCODE: Opcode = Opcode::#name;
            type Reply = #reply;

            #[inline]
            fn stream(&self) -> Option<::causeway_api::handle::Handle<::causeway_api::handle::Stream>> {
                let _request = self;
                #stream
            }
        }

        impl ::causeway_wire::codec::Encode for #name #elided {
            fn encode(&self, _out: &mut ::std::vec::Vec<u8>) {
                #(::causeway_wire::codec::Encode::encode(&self.#fields, _out);)*
            }
        }

        impl<'a> ::causeway_wire::codec::Decode<'a> for #name #lifetime {
            fn decode(
                _input: &mut ::causeway_wire::codec::Decoder<'a>,
            ) -> ::core::result::Result<Self, ::causeway_wire::codec::DecodeError> {
                Ok(Self { #(#fields: _input.value()?),* })
            }
        }
    }
}

fn stream(entry: &Entry) -> TokenStream {
    let named = entry.arguments.iter().find(|argument| {
        argument.base == "CUstream" && matches!(argument.mode, Mode::Value | Mode::New | Mode::Drop)
    });
    match named {
        Some(argument) => {
            let field = ident(&argument.name);
            quote!(Some(_request.#field))
        }
        None => quote!(None),
    }
}

fn payload(entry: &Entry) -> TokenStream {
    match entry.arguments.iter().find(|argument| argument.mode == Mode::Payload) {
        Some(argument) => {
            let field = ident(&argument.name);
            quote!(Some(_request.#field))
        }
        None => quote!(None),
    }
}

fn named(entry: &Entry) -> TokenStream {
    let tests =
        entry.arguments.iter().filter(|argument| marker(&argument.base).is_some()).filter_map(|argument| {
            let field = ident(&argument.name);
            match argument.mode {
                Mode::Value | Mode::Drop => Some(quote!(predicate(_request.#field.value()))),
                Mode::InList { .. } => {
                    Some(quote!(_request.#field.iter().any(|handle| predicate(handle.value()))))
                }
                _ => None,
            }
        });
    quote!(false #(|| #tests)*)
}

fn made(entry: &Entry) -> TokenStream {
    let fields = entry.arguments.iter().filter(|a| a.mode == Mode::New).map(|argument| ident(&argument.name));
    quote!(#(each(_request.#fields.value());)*)
}
