//! Command facts as code, besides the arguments: who carries one out, its order, how a
//! capture takes it.

use crate::entry::{Access, Capture, Entry, Executor, Mode, Order};
use crate::types::{ident, lifetime};
use proc_macro2::TokenStream;
use quote::quote;

/// The methods of `Opcode` and `Request` that answer from the facts, and the enums of requests for those who
/// carry them out by hand.
pub fn expand(wire: &[&Entry]) -> TokenStream {
    let names: Vec<_> = wire.iter().map(|entry| ident(&entry.name)).collect();
    let inert = wire.iter().map(|entry| is_inert(entry));
    let in_stream = wire.iter().map(|entry| is_stream_ordered(entry));
    let captures = wire.iter().map(|entry| match entry.command_facts().capture {
        Capture::Unconcerned | Capture::Passes => quote!(Capture::Passes),
        Capture::Node => quote!(Capture::Node),
        Capture::Refused => quote!(Capture::Refused),
    });
    let orders = wire.iter().map(|entry| order(entry));
    let ended = wire.iter().map(|entry| ended(entry));
    let new_streams = wire.iter().map(|entry| new_stream(entry));
    let executors = wire.iter().map(|entry| match entry.executor {
        Executor::BackEnd => quote!(Executor::BackEnd),
        Executor::Background { is_serial } => quote!(Executor::Background { is_serial: #is_serial }),
        Executor::Engine { .. } => {
            let name = ident(&entry.name);
            quote!(Executor::Engine(EngineRequest::#name(_request)))
        }
    });
    let nodes = wire.iter().map(|entry| match entry.command_facts().capture {
        Capture::Node => {
            let name = ident(&entry.name);
            quote!(Some(NodeRequest::#name(_request)))
        }
        Capture::Unconcerned | Capture::Passes | Capture::Refused => quote!(None),
    });
    let of_engine = wire.iter().filter(|entry| matches!(entry.executor, Executor::Engine { .. }));
    let of_nodes = wire.iter().filter(|entry| entry.command_facts().capture == Capture::Node);
    let engine_requests =
        requests("EngineRequest", "A request that the engine's own code carries out.", of_engine);
    let node_requests =
        requests("NodeRequest", "A request that becomes a node where its stream is captured.", of_nodes);
    quote! {
        impl Opcode {
            /// Whether the command leaves streams and contexts as idle as they were.
            pub const fn is_inert(self) -> bool {
                const INERT: &[bool] = &[#(#inert),*];
                INERT[self as usize]
            }

            /// Whether the command puts work into a stream, so that what it does may depend on all memory
            /// that the device reaches.
            pub const fn is_in_stream(self) -> bool {
                const IN_STREAM: &[bool] = &[#(#in_stream),*];
                IN_STREAM[self as usize]
            }

            /// How the command is taken where its stream is captured.
            pub const fn capture(self) -> Capture {
                const CAPTURES: &[Capture] = &[#(#captures),*];
                CAPTURES[self as usize]
            }
        }

        impl<'a> Request<'a> {
            /// How the command takes part in the order of its session.
            pub fn order(&self) -> Order {
                match self { #(Self::#names(_request) => #orders),* }
            }

            /// Who carries out the command.
            pub fn executor(&self) -> Executor<'_, 'a> {
                match self { #(Self::#names(_request) => #executors),* }
            }

            /// The context that the command ends, if it ends one.
            pub fn ended_context(
                &self,
            ) -> Option<::causeway_api::handle::Handle<::causeway_api::handle::Context>> {
                match self { #(Self::#names(_request) => #ended),* }
            }

            /// The stream that the command makes and its flags, if it makes one.
            pub fn new_stream(
                &self,
            ) -> Option<(::causeway_api::handle::Handle<::causeway_api::handle::Stream>, u32)> {
                match self { #(Self::#names(_request) => #new_streams),* }
            }

            /// The request as one that becomes a node, if it does where its stream is captured.
            pub fn as_node(&self) -> Option<NodeRequest<'_, 'a>> {
                match self { #(Self::#names(_request) => #nodes),* }
            }
        }

        #engine_requests
        #node_requests
    }
}

/// An enum of references to some of the requests, for a `match` that leaves none out.
fn requests<'a>(name: &str, text: &str, entries: impl Iterator<Item = &'a &'a Entry>) -> TokenStream {
    let enumeration = ident(name);
    let (names, lifetimes): (Vec<_>, Vec<_>) =
        entries.map(|entry| (ident(&entry.name), lifetime(entry))).unzip();
    quote! {
        #[doc = #text]
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types, missing_docs)]
        pub enum #enumeration<'r, 'a> { #(#names(&'r #names #lifetimes)),* }
    }
}

/// Watching and using events puts nothing into a stream either, not even by what they make the back end do.
fn is_inert(entry: &Entry) -> bool {
    match entry.command_facts().order {
        Order::Inert | Order::Watches(_) | Order::WatchesContext | Order::Uses(..) | Order::Reads(_) => true,
        Order::Free | Order::Barrier | Order::Changes(_) | Order::InStream { .. } => false,
    }
}

/// The end of a stream is in the stream's order, but no work for the device.
fn is_stream_ordered(entry: &Entry) -> bool {
    let Order::InStream { stream, .. } = &entry.command_facts().order else { return false };
    entry.arguments.iter().any(|argument| argument.name == *stream && argument.mode == Mode::Value)
}

fn order(entry: &Entry) -> TokenStream {
    match &entry.command_facts().order {
        Order::Free => quote!(Order::Free),
        Order::Inert => quote!(Order::Inert),
        Order::Barrier => quote!(Order::Barrier),
        Order::InStream { stream, shared } => {
            let stream = ident(stream);
            let shared = match shared {
                Some((access, name)) => {
                    let name = ident(name);
                    let access = match access {
                        Access::Read => quote!(Access::Read),
                        Access::Write => quote!(Access::Write),
                    };
                    quote!(Some((_request.#name.value(), #access)))
                }
                None => quote!(None),
            };
            quote!(Order::InStream { stream: _request.#stream, shared: #shared })
        }
        Order::Changes(object) => {
            let object = ident(object);
            quote!(Order::Changes { object: _request.#object.value() })
        }
        Order::Reads(object) => {
            let object = ident(object);
            quote!(Order::Reads { object: _request.#object.value() })
        }
        Order::Uses(event, other) => {
            let event = ident(event);
            let other = match other.as_deref().map(ident) {
                Some(other) => quote!(Some(_request.#other)),
                None => quote!(None),
            };
            quote!(Order::Uses { event: _request.#event, other: #other })
        }
        Order::Watches(stream) => {
            let stream = ident(stream);
            quote!(Order::Watches { stream: _request.#stream })
        }
        Order::WatchesContext => quote!(Order::WatchesContext),
    }
}

fn ended(entry: &Entry) -> TokenStream {
    match entry.command_facts().ends.as_deref().map(ident) {
        Some(context) => quote!(Some(_request.#context)),
        None => quote!(None),
    }
}

fn new_stream(entry: &Entry) -> TokenStream {
    let of_mode = |base: &str, mode: &Mode| {
        entry.arguments.iter().find(|argument| argument.base == base && argument.mode == *mode)
    };
    let Some(stream) = of_mode("CUstream", &Mode::New) else { return quote!(None) };
    let is_flags = |argument: &&crate::entry::Argument| argument.name == "flags" && argument.base == "u32";
    let flags = entry.arguments.iter().find(is_flags);
    let flags = flags.unwrap_or_else(|| {
        panic!("`{}` makes a stream, and no argument `flags: u32` says of which kind", entry.name)
    });
    let (stream, flags) = (ident(&stream.name), ident(&flags.name));
    quote!(Some((_request.#stream, _request.#flags)))
}
