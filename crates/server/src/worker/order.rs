//! Which command must wait for which other: the order of a session, decided without touching a GPU.
//!
//! Commands are issued in the order in which they came. One that cannot be issued yet (its data is still on
//! the way, its stream holds as much as the driver takes without blocking) is *deferred*; what depends on a
//! deferred command is deferred behind it, everything else goes on. So a stream that waits for something that
//! another thread of the client will post later cannot hold up that post.
//!
//! The dependencies are CUDA's own: commands of one stream are in order; the legacy default stream is in
//! order with every blocking stream; a use of an event comes after its record; and what destroys objects or
//! looks at a whole context comes after everything before it. Code comes before its use: a command that names
//! a module, or what comes from one, waits while the module is being loaded, and nothing else does. A launch has
//! the attributes that its function had when it was given: a deferred one holds up changes of them.

use causeway_api::calls::Request;
use causeway_api::handle::{Context, Event, Handle, Kind, Stream};
use causeway_api::order::{Access, Order};
use std::collections::{HashMap, HashSet};

/// `CU_STREAM_NON_BLOCKING`: the stream takes no part in the order of the legacy default stream.
const NON_BLOCKING: u32 = 1;

/// An [`Order`] of the declaration list in which a session's streams, events and objects have their keys: what names a
/// context's legacy default stream, by a handle that all contexts share, names that context's here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOrder {
    /// Depends on nothing that can be deferred.
    Free,
    /// Belongs into a stream.
    InStream {
        /// The stream's [key](key).
        stream: u64,
        /// An event that the command records or waits for, or the executable graph that it launches: launches
        /// and changes of it come one after the other, as records do; or the function that it launches.
        shared: Option<u64>,
        /// Whether the command records the event, or launches the graph.
        writes: bool,
    },
    /// Changes a graph, whose nodes are counted as they come, an executable one, or the attributes of a function
    /// or kernel, for the launches to come and not for those before.
    Changes {
        /// Its handle.
        object: u64,
    },
    /// Looks at the attributes of a function.
    Reads {
        /// Its handle.
        object: u64,
    },
    /// Looks at a stream and changes nothing: deferred behind the stream's commands, holds up none.
    Watches {
        /// The stream's [key](key).
        stream: u64,
    },
    /// Looks at or destroys an event.
    UsesEvent {
        /// The event's handle.
        event: u64,
        /// A second event, of `event_elapsed`.
        other: Option<u64>,
    },
    /// Looks at a whole context and changes nothing: deferred behind the commands of that context.
    WatchesContext {
        /// The context's handle.
        context: u64,
    },
    /// Comes after everything before it, and holds up nothing.
    Barrier,
}

impl CommandOrder {
    /// Whether the command records an event, waits for it, or uses it otherwise.
    pub fn names_event(self, event: Handle<Event>) -> bool {
        match self {
            Self::InStream { shared, .. } => shared == Some(event.value()),
            Self::UsesEvent { event: one, other } => one == event.value() || other == Some(event.value()),
            _ => false,
        }
    }

    /// The command names the event `to` in place of `from`.
    pub fn rename_event(&mut self, from: Handle<Event>, to: Handle<Event>) {
        let rename = |named: &mut u64| {
            if *named == from.value() {
                *named = to.value();
            }
        };
        match self {
            Self::InStream { shared, .. } => shared.iter_mut().for_each(rename),
            Self::UsesEvent { event, other } => {
                rename(event);
                other.iter_mut().for_each(rename);
            }
            _ => {}
        }
    }
}

/// The order of a command of `context`, from that of the declaration list.
pub fn command_order(order: Order, context: Handle<Context>) -> CommandOrder {
    match order {
        Order::Free | Order::Inert => CommandOrder::Free,
        Order::Barrier => CommandOrder::Barrier,
        Order::InStream { stream, shared } => CommandOrder::InStream {
            stream: key(stream, context),
            shared: shared.map(|(object, _)| object),
            writes: matches!(shared, Some((_, Access::Write))),
        },
        Order::Changes { object } => CommandOrder::Changes { object },
        Order::Reads { object } => CommandOrder::Reads { object },
        Order::Uses { event, other } => {
            CommandOrder::UsesEvent { event: event.value(), other: other.map(|other| other.value()) }
        }
        Order::Watches { stream } => CommandOrder::Watches { stream: key(stream, context) },
        Order::WatchesContext => CommandOrder::WatchesContext { context: context.value() },
    }
}

/// Marks the keys of legacy default streams; no kind of handle has this tag.
const LEGACY: u64 = 0xff << 56;

/// A number for a stream that a command of `context` names. Each context has a legacy default stream of its
/// own, and all of these have the same handle: null or `CU_STREAM_LEGACY` (1).
pub fn key(stream: Handle<Stream>, context: Handle<Context>) -> u64 {
    if stream.is_null() || stream.value() == 1 {
        LEGACY | (context.value() & !LEGACY)
    } else {
        stream.value()
    }
}

/// The handle of the stream with this key, for commands of its context.
pub fn handle(key: u64) -> Handle<Stream> {
    if is_legacy(key) { Handle::NULL } else { Handle::from_value(key) }
}

fn is_legacy(key: u64) -> bool {
    key & LEGACY == LEGACY
}

/// What is known of objects that matters for the order: to which legacy default stream of the session each stream
/// belongs, and whether it takes part in that one's order; of which kernel a function is.
#[derive(Default)]
pub struct ObjectKinds {
    /// The key of the legacy default stream of the stream's context; nothing for a non-blocking stream.
    legacy_of: HashMap<u64, Option<u64>>,
    /// The kernel of a function that is a kernel's in some context.
    kernel_of: HashMap<u64, u64>,
}

impl ObjectKinds {
    /// Notes what a command makes when it is received.
    pub fn note_made(&mut self, request: &Request<'_>, context: Handle<Context>) {
        if let Some((stream, flags)) = request.new_stream() {
            self.created(stream, context, flags);
        } else if let Request::kernel_function(made) = request {
            self.kernel_of.insert(made.function.value(), made.kernel.value());
        }
    }

    /// Under which handle the uses of an object are known: a kernel's functions have what is set of the kernel.
    fn shared(&self, object: u64) -> u64 {
        self.kernel_of.get(&object).copied().unwrap_or(object)
    }

    /// Notes a stream when its creation in `context` is received.
    pub fn created(&mut self, stream: Handle<Stream>, context: Handle<Context>, flags: u32) {
        let legacy = (flags & NON_BLOCKING == 0).then(|| key(Handle::NULL, context));
        self.legacy_of.insert(stream.value(), legacy);
    }

    /// Forgets a stream when its destruction has been issued.
    pub fn destroyed(&mut self, stream: Handle<Stream>) {
        self.legacy_of.remove(&stream.value());
    }

    /// The legacy default stream that a stream is in order with, if it is not one itself.
    fn legacy_of(&self, stream: u64) -> Option<u64> {
        self.legacy_of.get(&stream).copied().flatten()
    }

    /// Whether commands of one stream and the other are always in order.
    pub fn are_in_order(&self, one: u64, other: u64) -> bool {
        one == other || self.legacy_of(one) == Some(other) || self.legacy_of(other) == Some(one)
    }
}

/// What the commands deferred so far hold up, and those that are carried out in the background without
/// anybody waiting for them.
#[derive(Default)]
pub struct Blockers {
    /// Objects that are being made in the background.
    making: HashSet<u64>,
    /// Objects that deferred commands will make.
    unmade: HashSet<u64>,
    any: bool,
    streams: HashSet<u64>,
    /// Legacy default streams with which some of these are in order.
    legacy_streams: HashSet<u64>,
    /// In which contexts deferred commands work.
    contexts: HashSet<u64>,
    /// Events that a deferred command records (`true`) or waits for; graphs that one changes or launches;
    /// functions or their kernels whose attributes one changes (`true`), or that one launches.
    shared: HashMap<u64, bool>,
}

impl Blockers {
    /// Whether `request`, which takes part in the order as `order`, must stay behind another command.
    pub fn holds_up(&self, order: CommandOrder, request: &Request<'_>, kinds: &ObjectKinds) -> bool {
        self.holds_up_object(request) || self.holds_up_command(order, kinds)
    }

    fn holds_up_object(&self, request: &Request<'_>) -> bool {
        if self.making.is_empty() && self.unmade.is_empty() {
            return false;
        }
        // Code may still be being loaded into a context that is to end.
        request.ended_context().is_some()
            || request.names(|handle| self.making.contains(&handle) || self.unmade.contains(&handle))
    }

    /// Whether a command that takes part in the order like this must stay behind another one, whatever it names.
    pub fn holds_up_command(&self, order: CommandOrder, kinds: &ObjectKinds) -> bool {
        if !self.any {
            return false;
        }
        match order {
            CommandOrder::Free => false,
            CommandOrder::Barrier => true,
            CommandOrder::WatchesContext { context } => self.contexts.contains(&context),
            CommandOrder::Watches { stream } => self.holds_up_stream(stream, kinds),
            CommandOrder::InStream { stream, shared, writes } => {
                self.holds_up_stream(stream, kinds)
                    || shared.is_some_and(|object| match self.shared.get(&kinds.shared(object)) {
                        // Waiting for an event comes after its record; recording it again also after the
                        // waits.
                        Some(written) => writes || *written,
                        None => false,
                    })
            }
            CommandOrder::Changes { object } => self.shared.contains_key(&kinds.shared(object)),
            CommandOrder::Reads { object } => self.shared.get(&kinds.shared(object)) == Some(&true),
            CommandOrder::UsesEvent { event, other } => {
                self.shared.contains_key(&event)
                    || other.is_some_and(|event| self.shared.contains_key(&event))
            }
        }
    }

    /// The event that a command records, if only deferred commands that name it hold that up, and none of its stream.
    pub fn event_that_holds_up(&self, order: CommandOrder, kinds: &ObjectKinds) -> Option<Handle<Event>> {
        let CommandOrder::InStream { stream, shared: Some(object), writes: true } = order else {
            return None;
        };
        let event = Handle::<Event>::from_value(object);
        let is_held = event.tag() == Event::TAG && self.shared.contains_key(&object);
        (is_held && !self.holds_up_stream(stream, kinds)).then_some(event)
    }

    /// The deferred commands that name the event `from` name `to` from now on.
    pub fn rename_event(&mut self, from: Handle<Event>, to: Handle<Event>) {
        if let Some(is_recorded) = self.shared.remove(&from.value()) {
            self.shared.insert(to.value(), is_recorded);
        }
    }

    fn holds_up_stream(&self, stream: u64, kinds: &ObjectKinds) -> bool {
        self.streams.contains(&stream)
            || self.legacy_streams.contains(&stream)
            || kinds.legacy_of(stream).is_some_and(|legacy| self.streams.contains(&legacy))
    }

    /// Forgets every deferred command; those that are carried out in the background stay.
    pub fn forget_parked(&mut self) {
        *self = Self { making: core::mem::take(&mut self.making), ..Self::default() };
    }

    /// A command that nobody waits for begins to be carried out in the background.
    pub fn begin_making(&mut self, request: &Request<'_>) {
        request.makes(|handle| {
            self.making.insert(handle);
        });
    }

    /// Whether objects are being made in the background.
    pub fn are_any_made(&self) -> bool {
        !self.making.is_empty()
    }

    /// What was made in the background is there, or never will be.
    pub fn end_making(&mut self, handle: u64) {
        self.making.remove(&handle);
    }

    /// Adds a command of `context` that is deferred.
    pub fn add(
        &mut self,
        order: CommandOrder,
        context: Handle<Context>,
        request: &Request<'_>,
        kinds: &ObjectKinds,
    ) {
        request.makes(|handle| {
            self.unmade.insert(handle);
        });
        self.add_command(order, context, kinds);
    }

    /// Adds a command of `context` that is deferred and makes nothing.
    pub fn add_command(&mut self, order: CommandOrder, context: Handle<Context>, kinds: &ObjectKinds) {
        // What is free to be issued in any order holds up only those who name what it makes.
        if order != CommandOrder::Free {
            self.any = true;
            self.contexts.insert(context.value());
        }
        if let CommandOrder::Changes { object } = order {
            self.shared.insert(kinds.shared(object), true);
        }
        if let CommandOrder::InStream { stream, shared, writes } = order {
            self.streams.insert(stream);
            self.legacy_streams.extend(kinds.legacy_of(stream));
            if let Some(object) = shared {
                *self.shared.entry(kinds.shared(object)).or_default() |= writes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 6 << 56 | 10;
    const B: u64 = 6 << 56 | 11;
    const E: u64 = 7 << 56 | 1;

    /// Two contexts, and their legacy default streams.
    fn contexts() -> [(Handle<Context>, u64); 2] {
        [1, 2].map(|index| {
            let context = Handle::new(index, 0);
            (context, key(Handle::NULL, context))
        })
    }

    fn work(stream: u64) -> CommandOrder {
        CommandOrder::InStream { stream, shared: None, writes: false }
    }

    fn record(stream: u64) -> CommandOrder {
        CommandOrder::InStream { stream, shared: Some(E), writes: true }
    }

    fn wait(stream: u64) -> CommandOrder {
        CommandOrder::InStream { stream, shared: Some(E), writes: false }
    }

    fn blocked_by(deferred: &[CommandOrder], kinds: &ObjectKinds) -> Blockers {
        let mut blockers = Blockers::default();
        deferred.iter().for_each(|order| blockers.add_command(*order, contexts()[0].0, kinds));
        blockers
    }

    #[test]
    fn only_the_same_stream_is_held_up() {
        let kinds = ObjectKinds::default();
        let blockers = blocked_by(&[work(A)], &kinds);
        assert!(blockers.holds_up_command(work(A), &kinds));
        assert!(blockers.holds_up_command(CommandOrder::Watches { stream: A }, &kinds));
        assert!(!blockers.holds_up_command(work(B), &kinds));
        assert!(!blockers.holds_up_command(CommandOrder::Free, &kinds));
        assert!(blockers.holds_up_command(CommandOrder::Barrier, &kinds));
        assert!(!Blockers::default().holds_up_command(CommandOrder::Barrier, &kinds));
        let [own, other] =
            contexts().map(|(context, _)| CommandOrder::WatchesContext { context: context.value() });
        assert!(blockers.holds_up_command(own, &kinds) && !blockers.holds_up_command(other, &kinds));
    }

    #[test]
    fn the_legacy_stream_is_in_order_with_blocking_streams_of_its_context_only() {
        let [(context, legacy), (_, other)] = contexts();
        assert_ne!(legacy, other);
        assert_eq!((handle(legacy), handle(A)), (Handle::NULL, Handle::from_value(A)));
        let mut kinds = ObjectKinds::default();
        kinds.created(Handle::from_value(A), context, 0);
        kinds.created(Handle::from_value(B), context, NON_BLOCKING);
        let blockers = blocked_by(&[work(legacy)], &kinds);
        assert!(blockers.holds_up_command(work(A), &kinds));
        assert!(!blockers.holds_up_command(work(B), &kinds));
        assert!(!blockers.holds_up_command(work(other), &kinds));
        let blockers = blocked_by(&[work(A)], &kinds);
        assert!(blockers.holds_up_command(work(legacy), &kinds));
        assert!(
            !blockers.holds_up_command(work(other), &kinds),
            "another context's stands still for nothing"
        );
        assert!(!blocked_by(&[work(B)], &kinds).holds_up_command(work(legacy), &kinds));
        assert!(kinds.are_in_order(A, legacy) && kinds.are_in_order(legacy, A));
        assert!(!kinds.are_in_order(A, other) && !kinds.are_in_order(B, legacy));
    }

    #[test]
    fn an_event_is_used_after_its_parked_record() {
        let kinds = ObjectKinds::default();
        let blockers = blocked_by(&[record(A)], &kinds);
        assert!(blockers.holds_up_command(wait(B), &kinds));
        assert!(blockers.holds_up_command(record(B), &kinds));
        assert!(blockers.holds_up_command(CommandOrder::UsesEvent { event: E, other: None }, &kinds));
        assert!(blockers.holds_up_command(CommandOrder::UsesEvent { event: 1, other: Some(E) }, &kinds));
    }

    #[test]
    fn a_parked_wait_holds_up_a_new_record_but_not_another_wait() {
        let kinds = ObjectKinds::default();
        let blockers = blocked_by(&[wait(A)], &kinds);
        assert!(blockers.holds_up_command(record(B), &kinds));
        assert!(!blockers.holds_up_command(wait(B), &kinds));
    }

    #[test]
    fn a_new_record_behind_its_event_alone_is_known_and_passes_when_that_is_renamed() {
        let kinds = ObjectKinds::default();
        let (event, other) = (Handle::<Event>::from_value(E), Handle::<Event>::from_value(E + 1));
        let mut blockers = blocked_by(&[record(A)], &kinds);
        assert_eq!(blockers.event_that_holds_up(record(B), &kinds), Some(event));
        assert_eq!(blockers.event_that_holds_up(record(A), &kinds), None, "its stream holds it up, too");
        assert_eq!(blockers.event_that_holds_up(wait(B), &kinds), None, "a wait comes after the record");
        let of_graph = CommandOrder::InStream { stream: B, shared: Some(10 << 56), writes: true };
        assert_eq!(blocked_by(&[of_graph], &kinds).event_that_holds_up(of_graph, &kinds), None);
        blockers.rename_event(event, other);
        assert!(!blockers.holds_up_command(record(B), &kinds) && !blockers.holds_up_command(wait(B), &kinds));
        let mut wait_for_it = wait(B);
        wait_for_it.rename_event(event, other);
        assert!(wait_for_it.names_event(other) && blockers.holds_up_command(wait_for_it, &kinds));
        let mut elapsed = CommandOrder::UsesEvent { event: 1, other: Some(E) };
        elapsed.rename_event(event, other);
        assert_eq!(elapsed, CommandOrder::UsesEvent { event: 1, other: Some(E + 1) });
    }

    #[test]
    fn a_graph_is_changed_between_the_launches_before_and_after() {
        const G: u64 = 10 << 56 | 1;
        let kinds = ObjectKinds::default();
        let launch = |stream| CommandOrder::InStream { stream, shared: Some(G), writes: true };
        let launched = blocked_by(&[launch(A)], &kinds);
        let change = |object| CommandOrder::Changes { object };
        assert!(
            launched.holds_up_command(change(G), &kinds) && !launched.holds_up_command(change(1), &kinds)
        );
        assert!(
            launched.holds_up_command(launch(B), &kinds),
            "launches of one graph come one after the other"
        );
        let changed = blocked_by(&[launch(A), change(G)], &kinds);
        assert!(changed.holds_up_command(launch(B), &kinds) && changed.holds_up_command(change(G), &kinds));
    }

    #[test]
    fn the_attributes_of_a_function_change_between_its_launches() {
        use causeway_api::calls::kernel_function;
        const K: u64 = 12 << 56 | 1;
        const F: u64 = 13 << 56 | 1;
        let mut kinds = ObjectKinds::default();
        let made = kernel_function { function: Handle::from_value(F), kernel: Handle::from_value(K) };
        kinds.note_made(&Request::kernel_function(made), contexts()[0].0);
        let launch = |stream| CommandOrder::InStream { stream, shared: Some(F), writes: false };
        let (change, look) = (|object| CommandOrder::Changes { object }, CommandOrder::Reads { object: F });
        let launched = blocked_by(&[launch(A)], &kinds);
        assert!(!launched.holds_up_command(launch(B), &kinds) && !launched.holds_up_command(look, &kinds));
        assert!(launched.holds_up_command(change(F), &kinds) && launched.holds_up_command(change(K), &kinds));
        assert!(!launched.holds_up_command(change(F + 1), &kinds));
        for changed in [F, K] {
            let changed = blocked_by(&[launch(A), change(changed)], &kinds);
            assert!(changed.holds_up_command(launch(B), &kinds) && changed.holds_up_command(look, &kinds));
        }
    }

    #[test]
    fn watching_holds_up_nothing() {
        let kinds = ObjectKinds::default();
        let blockers = blocked_by(&[CommandOrder::Watches { stream: A }, CommandOrder::Barrier], &kinds);
        assert!(!blockers.holds_up_command(work(A), &kinds));
    }

    #[test]
    fn only_what_comes_from_a_module_waits_for_its_load() {
        use causeway_api::calls::{launch, library_kernel, library_load, primary_context_release};
        use causeway_api::handle::{Function, Kernel, Library};
        use causeway_api::types::{JitOptions, LaunchShape, Payload};

        let (library, kernel) = (Handle::<Library>::new(1, 0), Handle::<Kernel>::new(2, 0));
        let function = |value| Handle::<Function>::from_value(value);
        let image = Payload::Image { number: 1, length: 1, hash: [0; 32] };
        let load =
            Request::library_load(library_load { library, form: 0, options: JitOptions::default(), image });
        let find = Request::library_kernel(library_kernel { kernel, library, name: "k" });
        let start = |function| {
            let shape = LaunchShape::default();
            let stream = Handle::from_value(A);
            Request::launch(launch { function, shape, stream, attributes: Vec::new(), params: &[] })
        };
        let kinds = ObjectKinds::default();
        let mut blockers = Blockers::default();
        let held = |blockers: &Blockers, request: &Request<'_>| {
            blockers.holds_up(command_order(request.order(), Handle::NULL), request, &kinds)
        };
        assert!(!held(&blockers, &load));
        blockers.begin_making(&load);
        blockers.forget_parked();
        assert!(held(&blockers, &find) && !held(&blockers, &start(function(kernel.value()))));
        blockers.add(command_order(find.order(), Handle::NULL), Handle::NULL, &find, &kinds);
        assert!(held(&blockers, &start(function(kernel.value()))) && !held(&blockers, &start(function(5))));
        let release = primary_context_release { context: Handle::<Context>::new(0, 0), device: 0 };
        assert!(held(&blockers, &Request::primary_context_release(release.clone())));
        blockers.forget_parked();
        blockers.end_making(library.value());
        assert!(!held(&blockers, &find) && !held(&blockers, &Request::primary_context_release(release)));
    }
}
