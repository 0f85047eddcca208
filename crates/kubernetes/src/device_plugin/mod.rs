//! Device plugin: GPUs of servers as devices of a kubelet, which pods ask for as a resource.
//!
//! The plugin listens at a socket in the kubelet's folder and makes itself known at the kubelet's own. The kubelet
//! follows the list of devices, and asks for each container what it gets: variables and mounts
//! (<https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/>).
//!
//! | module | contents |
//! | --- | --- |
//! | `api` | Messages of the device plugin API, version v1beta1 |
//! | `inventory` | GPUs of servers as devices of a kubelet: names, health, and which of them a container should get |
//! | `plugin` | Plugin of a kubelet: the list of devices, what a container gets with some of them, and registration at the kubelet |

pub mod api;
pub mod inventory;
pub mod plugin;

pub use inventory::{Gpu, Inventory};
pub use plugin::{Plugin, Registration, check_resource};
