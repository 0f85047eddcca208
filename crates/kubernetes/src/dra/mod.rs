//! Dynamic Resource Allocation: GPUs of servers that the scheduler gives to claims, for the whole cluster.
//!
//! A controller publishes the GPUs as ResourceSlices, one pool for each server; the scheduler allocates them to
//! ResourceClaims; the kubelet of a pod's node asks the driver there to prepare the claim, which names devices for the
//! container engine (<https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>).
//!
//! | module | contents |
//! | --- | --- |
//! | `api` | Messages of Dynamic Resource Allocation between a kubelet and a driver, and of the driver's registration |
//! | `claim` | Allocation of a ResourceClaim: the devices of one driver that the scheduler has given it |
//! | `driver` | Driver of a node: registers with the kubelet, and prepares claims for its containers |
//! | `prepared` | Prepared claims on a node's disk: for each a description for container engines, and a record of its devices |
//! | `slice` | ResourceSlice of a server: its GPUs, as the scheduler sees them |

pub mod api;
pub mod claim;
pub mod driver;
pub mod prepared;
pub mod slice;
