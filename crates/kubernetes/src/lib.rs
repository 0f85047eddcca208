//! Kubernetes' device plugin API: the messages between a kubelet and Causeway.
//!
//! | module | contents |
//! | --- | --- |
//! | [`device_plugin`] | Device plugin: GPUs of servers as devices of a kubelet, which pods ask for as a resource |
//! | [`grpc`] | gRPC over Unix sockets: as much of it as kubelets speak with their plugins |
//!
//! Nothing here knows servers: who uses this says which GPUs there are and what a container gets with them.

pub mod device_plugin;
pub mod grpc;
