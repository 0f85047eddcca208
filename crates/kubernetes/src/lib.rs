//! Kubernetes' device plugin API: the messages between a kubelet and Causeway.
//!
//! | Module            | Contents |
//! |-------------------|----------|
//! | [`device_plugin`] | Device plugin: GPUs of servers as devices of a kubelet |
//! | [`grpc`]          | gRPC over Unix sockets |
//!
//! Nothing here knows servers: who uses this says which GPUs there are and what a container gets with them.

pub mod device_plugin;
pub mod grpc;
