//! Messages of the device plugin API, version v1beta1.
//!
//! Numbers of fields are those of `k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto`.

use std::collections::BTreeMap;

use prost::Message;

/// The version of the API.
pub const VERSION: &str = "v1beta1";
/// The socket of the kubelet, in its folder of device plugins.
pub const KUBELET_SOCKET: &str = "kubelet.sock";
/// The health of a device that may be used.
pub const HEALTHY: &str = "Healthy";
/// The health of one that may not.
pub const UNHEALTHY: &str = "Unhealthy";
/// The most bytes of a device's name.
pub const MAX_DEVICE_ID: usize = 63;

/// The kubelet's procedure by which a plugin makes itself known.
pub const REGISTER: &str = "/v1beta1.Registration/Register";
/// The plugin's procedures: says what it can do.
pub const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
/// Says which devices there are, and again whenever that changes.
pub const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
/// Says which of several devices should be taken.
pub const PREFERRED_ALLOCATION: &str = "/v1beta1.DevicePlugin/GetPreferredAllocation";
/// Says what a container gets with devices.
pub const ALLOCATE: &str = "/v1beta1.DevicePlugin/Allocate";
/// Called before a container starts, for plugins that ask for it.
pub const PRE_START: &str = "/v1beta1.DevicePlugin/PreStartContainer";

/// A message without fields.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Empty {}

/// What a plugin can do.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Options {
    /// It is called before each container starts.
    #[prost(bool, tag = "1")]
    pub pre_start_required: bool,
    /// It is asked which devices should be taken.
    #[prost(bool, tag = "2")]
    pub preferred_allocation: bool,
}

/// How a plugin makes itself known.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegisterRequest {
    /// The version of the API.
    #[prost(string, tag = "1")]
    pub version: String,
    /// The file name of the plugin's socket, beside the kubelet's.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// What pods ask for.
    #[prost(string, tag = "3")]
    pub resource: String,
    /// What the plugin can do.
    #[prost(message, optional, tag = "4")]
    pub options: Option<Options>,
}

/// All devices of a plugin.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceList {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// A device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    /// Its name.
    #[prost(string, tag = "1")]
    pub id: String,
    /// [`HEALTHY`] or [`UNHEALTHY`].
    #[prost(string, tag = "2")]
    pub health: String,
}

/// Which devices should be taken for containers of a pod?
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreferenceRequest {
    /// The containers.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<ContainerPreference>,
}

/// Which devices should be taken for a container?
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerPreference {
    /// Those that may be taken.
    #[prost(string, repeated, tag = "1")]
    pub available: Vec<String>,
    /// Those that must be.
    #[prost(string, repeated, tag = "2")]
    pub required: Vec<String>,
    /// How many in all.
    #[prost(int32, tag = "3")]
    pub count: i32,
}

/// The devices that should be taken for containers.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreferenceResponse {
    /// In the order of the request.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<DeviceIds>,
}

/// Names of devices.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceIds {
    /// The names.
    #[prost(string, repeated, tag = "1")]
    pub ids: Vec<String>,
}

/// What do containers get with these devices?
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AllocateRequest {
    /// The devices of each container.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<DeviceIds>,
}

/// What containers get.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AllocateResponse {
    /// In the order of the request.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<ContainerEdits>,
}

/// What a container gets with its devices.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerEdits {
    /// Environment variables.
    #[prost(btree_map = "string, string", tag = "1")]
    pub variables: BTreeMap<String, String>,
    /// Files and folders of the node.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<Mount>,
}

/// A file or folder of the node in a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mount {
    /// Its path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Its path on the node.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Whether the container cannot write to it.
    #[prost(bool, tag = "3")]
    pub read_only: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against bytes that were worked out by hand from the API's file.
    #[test]
    fn messages_have_the_numbers_of_the_api() {
        let register = RegisterRequest {
            version: "v".into(),
            endpoint: "e".into(),
            resource: "r".into(),
            options: Some(Options { pre_start_required: false, preferred_allocation: true }),
        };
        assert_eq!(register.encode_to_vec(), b"\x0a\x01v\x12\x01e\x1a\x01r\x22\x02\x10\x01");
        let list = DeviceList { devices: vec![Device { id: "d".into(), health: "h".into() }] };
        assert_eq!(list.encode_to_vec(), b"\x0a\x06\x0a\x01d\x12\x01h");
        let edits = ContainerEdits {
            variables: [("k".into(), "v".into())].into(),
            mounts: vec![Mount { container_path: "c".into(), host_path: "h".into(), read_only: true }],
        };
        // A container, in it an entry of the map and a mount.
        let expected = b"\x0a\x12\x0a\x06\x0a\x01k\x12\x01v\x12\x08\x0a\x01c\x12\x01h\x18\x01";
        assert_eq!(AllocateResponse { containers: vec![edits] }.encode_to_vec(), expected);
        let preference = b"\x0a\x08\x0a\x01a\x12\x01b\x18\x02";
        let decoded = PreferenceRequest::decode(&preference[..]).unwrap();
        let container =
            ContainerPreference { available: vec!["a".into()], required: vec!["b".into()], count: 2 };
        assert_eq!(decoded.containers, [container]);
    }
}
