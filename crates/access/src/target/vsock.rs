//! vsock address: the number of a virtual machine or of its host (CID), and a port (`man 7 vsock`).

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// What the address of a vsock begins with.
pub(super) const VSOCK: &str = "vsock:";

/// The port that no vsock has: the kernel reads it as any (`VMADDR_PORT_ANY`).
const PORT_ANY: u32 = u32::MAX;

/// A port of a virtual machine or of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VsockAddress {
    /// The machine: [`Self::HOST`] is the host, [`Self::LOCAL`] the machine itself, guests begin with 3.
    pub cid: u32,
    /// The port. It has nothing to do with TCP's.
    pub port: u32,
}

impl VsockAddress {
    /// The CID of whoever runs: at this one a server is reached from all machines that reach it
    /// (`VMADDR_CID_ANY`).
    pub const ANY: u32 = u32::MAX;
    /// The CID of the machine itself, where its kernel has the loopback transport (`VMADDR_CID_LOCAL`).
    pub const LOCAL: u32 = 1;
    /// The CID of the host, as its guests see it (`VMADDR_CID_HOST`).
    pub const HOST: u32 = 2;

    /// The address at which a server listens: as a client writes it, or `vsock:PORT` for callers with any CID.
    ///
    /// # Errors
    /// When it is neither.
    pub fn to_listen_at(text: &str) -> Result<Self, VsockAddressError> {
        match text.strip_prefix(VSOCK) {
            Some(port) if !port.contains(':') => Ok(Self { cid: Self::ANY, port: parse_port(port, text)? }),
            _ => text.parse(),
        }
    }
}

impl fmt::Display for VsockAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cid {
            Self::ANY => write!(f, "{VSOCK}{}", self.port),
            cid => write!(f, "{VSOCK}{cid}:{}", self.port),
        }
    }
}

/// A text is no [`VsockAddress`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VsockAddressError {
    /// One of its numbers is missing, or too many are there.
    #[error(
        "`{0}` names no vsock: write vsock:CID:PORT, where CID is the number of the machine; guests reach their host at \
         vsock:2:PORT"
    )]
    Form(String),
    /// The machine's number is none.
    #[error(
        "`{found}` in `{address}` is no CID: it must be the number of a machine, 2 for the host, 1 for this machine itself, \
         3 or more for a guest"
    )]
    Cid {
        /// What stands where the number should be.
        found: String,
        /// The address.
        address: String,
    },
    /// The port is none.
    #[error("`{found}` in `{address}` is no port of a vsock: it must be a number from 1 to 4294967294")]
    Port {
        /// What stands where the port should be.
        found: String,
        /// The address.
        address: String,
    },
}

impl FromStr for VsockAddress {
    type Err = VsockAddressError;

    fn from_str(text: &str) -> Result<Self, VsockAddressError> {
        let form = || VsockAddressError::Form(text.to_owned());
        let (cid, port) = text.strip_prefix(VSOCK).and_then(|rest| rest.split_once(':')).ok_or_else(form)?;
        // 0 is the hypervisor, at which no program listens.
        let cid = match decimal(cid) {
            Some(number) if number != 0 && number != Self::ANY => number,
            _ => return Err(VsockAddressError::Cid { found: cid.to_owned(), address: text.to_owned() }),
        };
        Ok(Self { cid, port: parse_port(port, text)? })
    }
}

fn parse_port(port: &str, address: &str) -> Result<u32, VsockAddressError> {
    match decimal(port) {
        Some(number) if number != 0 && number != PORT_ANY => Ok(number),
        _ => Err(VsockAddressError::Port { found: port.to_owned(), address: address.to_owned() }),
    }
}

/// A number of digits alone.
fn decimal(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in ["vsock:2:7690", "vsock:1:1", "vsock:4294967294:4294967294"] {
            assert_eq!(text.parse::<VsockAddress>().unwrap().to_string(), text);
            assert_eq!(VsockAddress::to_listen_at(text), text.parse());
        }
        let any = VsockAddress::to_listen_at("vsock:7690").unwrap();
        assert_eq!((any.cid, any.port, any.to_string().as_str()), (VsockAddress::ANY, 7690, "vsock:7690"));
    }

    #[test]
    fn what_is_no_address_is_explained() {
        let message = |text: &str| text.parse::<VsockAddress>().unwrap_err().to_string();
        assert!(message("vsock:7690").contains("write vsock:CID:PORT"));
        for cid in ["0", "4294967295", "4294967296", "host", "-1", "+2", ""] {
            let text = message(&format!("vsock:{cid}:7690"));
            assert!(text.contains("is no CID") && text.contains("2 for the host"), "{text}");
        }
        for port in ["0", "4294967295", "http", "", "1:2", "+1"] {
            assert!(message(&format!("vsock:2:{port}")).contains("is no port of a vsock"), "{port}");
            // Of two numbers the first is a CID.
            let listening = VsockAddress::to_listen_at(&format!("vsock:{port}"));
            assert!(port == "1:2" || listening.is_err(), "{port}: {listening:?}");
        }
    }
}
