//! Client side of the handshake: proof of the key, and the request.
//!
//! | module | contents |
//! | --- | --- |
//! | `options` | How long a client waits for what, and which ways to the server it takes |
//! | `hello` | The first words on a connection: the preface, the proofs of the secret, and one message each way |
//! | `lanes` | Opening of a session's bulk lanes over TCP |
//! | `relocations` | Relocations of a session: where its further connections are dialled, once its worker has said that it goes elsewhere |
//! | `error` | Why a client got no session |

pub(crate) mod error;
pub(crate) mod hello;
pub(crate) mod lanes;
pub(crate) mod options;
pub(crate) mod relocations;
