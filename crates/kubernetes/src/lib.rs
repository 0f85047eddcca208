//! Kubernetes: the messages between a kubelet or an API server and Causeway.
//!
//! | module | contents |
//! | --- | --- |
//! | `device_plugin` | Device plugin: GPUs of servers as devices of a kubelet, which pods ask for as a resource |
//! | `grpc` | gRPC over Unix sockets: as much of it as kubelets speak with their plugins |
//! | `api_server` | API server of a cluster: requests for its objects, with the token of a service account |
//! | `dra` | Dynamic Resource Allocation: GPUs of servers that the scheduler gives to claims, for the whole cluster |
//! | `kubelet` | Kubelet: what a device plugin and a DRA driver have in common as its plugins, their sockets and their run |
//!
//! Nothing here knows servers: who uses this says which GPUs there are and what a container gets with them.

pub mod api_server;
pub mod device_plugin;
pub mod dra;
pub mod grpc;
pub mod kubelet;
