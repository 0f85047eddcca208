//! Device plugin: GPUs of servers as devices of a kubelet, which pods ask for as a resource.
//!
//! The plugin listens at a socket in the kubelet's folder and makes itself known at the kubelet's own. The kubelet
//! follows the list of devices, and asks for each container what it gets: variables and mounts
//! (<https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/>).
//!
//! | Module           | Question it answers                                         |
//! |------------------|-------------------------------------------------------------|
//! | [`api`]          | Which messages are there?                                   |
//! | [`inventory`]    | Which devices are there, and which should be taken? Pure.   |
//! | [`plugin`]       | What is the kubelet answered?                               |
//! | [`registration`] | How does the kubelet come to know the plugin, and know it again? |

pub mod api;
pub mod inventory;
pub mod plugin;
pub mod registration;

pub use inventory::{Gpu, Inventory};
pub use plugin::Plugin;
pub use registration::{Registration, RegistrationError, check_resource};
