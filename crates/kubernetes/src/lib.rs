//! What a kubelet and Causeway say to each other, by Kubernetes' device plugin API.
//!
//! | Module            | Question it answers                                                            |
//! |-------------------|--------------------------------------------------------------------------------|
//! | [`device_plugin`] | How does a kubelet come to give containers the GPUs of servers?                |
//! | [`grpc`]          | How do two processes of a host call each other's procedures over a Unix socket? |
//!
//! Nothing here knows servers: who uses this says which GPUs there are and what a container gets with them.

pub mod device_plugin;
pub mod grpc;
