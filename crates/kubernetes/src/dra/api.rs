//! Messages of Dynamic Resource Allocation between a kubelet and a driver, and of the driver's registration.
//!
//! Numbers of fields are those of `k8s.io/kubelet/pkg/apis/dra/v1/api.proto`, to which v1beta1 is equal, and of
//! `k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto`.

use std::collections::BTreeMap;

use prost::Message;

/// The kind of plugin that a DRA driver is.
pub const PLUGIN_TYPE: &str = "DRAPlugin";
/// The versions of the service that a driver has, the best first.
pub const VERSIONS: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];
/// The packages of these versions, as the names of procedures begin with them.
const PACKAGES: [&str; 2] = ["/k8s.io.kubelet.pkg.apis.dra.v1.", "/k8s.io.kubelet.pkg.apis.dra.v1beta1."];

/// The procedure by which a kubelet asks what registers.
pub const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
/// The procedure by which it says whether that is registered.
pub const NOTIFY_STATUS: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";

/// A procedure of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Procedure {
    /// Makes claims usable on this node.
    Prepare,
    /// Undoes that.
    Unprepare,
}

impl Procedure {
    /// The procedure that a path of gRPC names, of any version.
    pub fn of_path(path: &str) -> Option<Self> {
        match PACKAGES.iter().find_map(|package| path.strip_prefix(package))? {
            "DRAPlugin/NodePrepareResources" => Some(Self::Prepare),
            "DRAPlugin/NodeUnprepareResources" => Some(Self::Unprepare),
            _ => None,
        }
    }

    /// Its path in the newest version.
    pub fn path(self) -> String {
        let name = match self {
            Self::Prepare => "NodePrepareResources",
            Self::Unprepare => "NodeUnprepareResources",
        };
        format!("{}DRAPlugin/{name}", PACKAGES[0])
    }
}

/// What registers with a kubelet.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PluginInfo {
    /// [`PLUGIN_TYPE`].
    #[prost(string, tag = "1")]
    pub kind: String,
    /// The name of the driver.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The path of its socket.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// [`VERSIONS`].
    #[prost(string, repeated, tag = "4")]
    pub versions: Vec<String>,
}

/// Whether a kubelet has registered a plugin.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RegistrationStatus {
    /// It has.
    #[prost(bool, tag = "1")]
    pub is_registered: bool,
    /// Why not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// The claims that are to be prepared, or no longer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Claims {
    /// The claims.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// A ResourceClaim.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Claim {
    /// Its namespace.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Its UID, which no other claim ever has.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// State of each claim, by its UID.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PrepareResponse {
    /// The claims.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, PreparedClaim>,
}

/// What a container gets with a claim, or why it gets nothing.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreparedClaim {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<PreparedDevice>,
    /// Why there are none.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A device of a claim.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreparedDevice {
    /// The requests of the claim that it is for.
    #[prost(string, repeated, tag = "1")]
    pub requests: Vec<String>,
    /// The pool that it is of.
    #[prost(string, tag = "2")]
    pub pool: String,
    /// Its name there.
    #[prost(string, tag = "3")]
    pub device: String,
    /// Devices by the Container Device Interface.
    #[prost(string, repeated, tag = "4")]
    pub cdi_devices: Vec<String>,
}

/// State of each claim that is no longer to be prepared, by its UID.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct UnprepareResponse {
    /// The claims.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, UnpreparedClaim>,
}

/// Why a claim is still prepared, if it is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct UnpreparedClaim {
    /// The reason.
    #[prost(string, tag = "1")]
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against bytes that were worked out by hand from the API's files.
    #[test]
    fn messages_have_the_numbers_of_the_api() {
        let info = PluginInfo {
            kind: "k".into(),
            name: "n".into(),
            endpoint: "e".into(),
            versions: vec!["v".into()],
        };
        assert_eq!(info.encode_to_vec(), b"\x0a\x01k\x12\x01n\x1a\x01e\x22\x01v");
        let claim = Claim { namespace: "s".into(), uid: "u".into(), name: "n".into() };
        let claims = Claims { claims: vec![claim] };
        assert_eq!(claims.encode_to_vec(), b"\x0a\x09\x0a\x01s\x12\x01u\x1a\x01n");
        let device = PreparedDevice {
            requests: vec!["r".into()],
            pool: "p".into(),
            device: "d".into(),
            cdi_devices: vec!["c".into()],
        };
        let prepared = PreparedClaim { devices: vec![device], error: "e".into() };
        let expected = b"\x0a\x0c\x0a\x01r\x12\x01p\x1a\x01d\x22\x01c\x12\x01e";
        assert_eq!(prepared.encode_to_vec(), expected);
        let response = UnprepareResponse { claims: [("u".to_owned(), UnpreparedClaim::default())].into() };
        let decoded = UnprepareResponse::decode(&b"\x0a\x05\x0a\x01u\x12\x00"[..]).unwrap();
        assert_eq!(decoded, response);
    }

    #[test]
    fn procedures_are_known_in_both_versions() {
        for version in ["v1", "v1beta1"] {
            let path = |name| format!("/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/{name}");
            assert_eq!(Procedure::of_path(&path("NodePrepareResources")), Some(Procedure::Prepare));
            assert_eq!(Procedure::of_path(&path("NodeUnprepareResources")), Some(Procedure::Unprepare));
            assert_eq!(Procedure::of_path(&path("Other")), None);
        }
        assert_eq!(Procedure::of_path(&Procedure::Unprepare.path()), Some(Procedure::Unprepare));
        assert_eq!(Procedure::of_path("/v2.DRAPlugin/NodePrepareResources"), None);
    }
}
