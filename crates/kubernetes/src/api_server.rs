//! API server of a cluster: requests for its objects, with the token of a service account.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, RequestBuilder};
use zeroize::Zeroizing;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The most bytes of a response.
const MAX_RESPONSE_BYTES: u64 = 16 << 20;
/// The most characters of what the API server says, in an error.
const MAX_MESSAGE: usize = 500;
/// Where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why an object cannot be had or changed.
#[derive(Debug, Error)]
pub enum ApiError {
    /// This is no pod.
    #[error(
        "no API server is known: in a pod, Kubernetes names it (KUBERNETES_SERVICE_HOST); elsewhere pass \
         --api-server, such as http://127.0.0.1:8001 of `kubectl proxy`"
    )]
    NotInCluster,
    /// A token would be sent in the clear.
    #[error(
        "{0} is not https, so others could read the token of --api-token: omit the token, or give an https \
         address"
    )]
    TokenInClear(String),
    /// The address is no address.
    #[error(
        "`{0}` is no address of an API server: give https://HOST:PORT, or http://HOST:PORT of a proxy on this machine"
    )]
    BadAddress(String),
    /// A file cannot be read.
    #[error("{} cannot be read: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A file has no certificates.
    #[error("{} has no certificate (PEM) to verify the API server with", .0.display())]
    NoCertificate(PathBuf),
    /// There is no connection, or it is not the API server's.
    #[error("cannot connect to the API server at {address}: {cause}")]
    Connection {
        /// The API server.
        address: String,
        /// What happened.
        cause: ureq::Error,
    },
    /// The API server refuses.
    #[error("the API server refused {method} {path} (status {status}): {text}{}", advice(*status))]
    Refused {
        /// What was asked for.
        method: &'static str,
        /// Of which object.
        path: String,
        /// The status of HTTP.
        status: u16,
        /// In its words.
        text: String,
    },
    /// The response makes no sense.
    #[error("the reply of the API server to {path} is not JSON: {cause}")]
    Malformed {
        /// What was asked for.
        path: String,
        /// What is wrong.
        cause: serde_json::Error,
    },
}

fn advice(status: u16) -> &'static str {
    match status {
        401 => "; is the service account's token still good?",
        403 => "; the service account needs the ClusterRole of the chart or of the manifest",
        _ => "",
    }
}

impl ApiError {
    /// Whether another process has changed the object meanwhile.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { status: 409, .. })
    }
}

/// An API server.
#[derive(Debug, Clone)]
pub struct ApiServer {
    agent: Agent,
    address: String,
    token: Option<PathBuf>,
}

impl ApiServer {
    /// The API server of this pod's cluster.
    ///
    /// # Errors
    /// When this is no pod, or has no service account.
    pub fn of_cluster() -> Result<Self, ApiError> {
        let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST").ok_or(ApiError::NotInCluster)?;
        let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let file = |name| Path::new(SERVICE_ACCOUNT).join(name);
        Self::new(&format!("https://{host}:{port}"), Some(&file("ca.crt")), Some(file("token")))
    }

    /// The API server at an address. `authority` is a file with the certificates by which it is recognised, `token` one with
    /// what this process proves itself with; it is read anew for each request, since Kubernetes replaces it.
    ///
    /// # Errors
    /// When the address makes no sense, or a file cannot be read.
    pub fn new(address: &str, authority: Option<&Path>, token: Option<PathBuf>) -> Result<Self, ApiError> {
        let address = address.trim_end_matches('/');
        let bad = || ApiError::BadAddress(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| bad())?;
        match (uri.scheme_str(), uri.host()) {
            (Some("https"), Some(_)) => {}
            (Some("http"), Some(_)) if token.is_some() => {
                return Err(ApiError::TokenInClear(address.to_owned()));
            }
            (Some("http"), Some(_)) => {}
            _ => return Err(bad()),
        }
        let roots = authority.map(certificates).transpose()?.unwrap_or_default();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .build();
        let agent = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            // What the environment names would be for the internet.
            .proxy(None)
            .user_agent(concat!("causeway/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Self { agent, address: address.to_owned(), token })
    }

    /// An object or a list; none where it is not there.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn get(&self, path: &str) -> Result<Option<Vec<u8>>, ApiError> {
        let request = self.agent.get(format!("{}{path}", self.address));
        let response = self.with_token(request)?.call();
        match self.read("GET", path, response) {
            Ok(body) => Ok(Some(body)),
            Err(ApiError::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An object or a list as JSON; none where it is not there.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn get_json(&self, path: &str) -> Result<Option<Value>, ApiError> {
        let body = self.get(path)?;
        let parse = |body: Vec<u8>| serde_json::from_slice(&body);
        body.map(parse).transpose().map_err(|cause| ApiError::Malformed { path: path.to_owned(), cause })
    }

    /// Creates an object in a list.
    ///
    /// # Errors
    /// When the API server does not take it.
    pub fn create(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        let request = self.agent.post(format!("{}{path}", self.address));
        let request = self.with_token(request)?.header("content-type", "application/json");
        self.read("POST", path, request.send(object.to_string())).map(drop)
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// When the API server does not take it.
    pub fn replace(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        let request = self.agent.put(format!("{}{path}", self.address));
        let request = self.with_token(request)?.header("content-type", "application/json");
        self.read("PUT", path, request.send(object.to_string())).map(drop)
    }

    /// Deletes an object. One that is not there is no error.
    ///
    /// # Errors
    /// When the API server refuses.
    pub fn delete(&self, path: &str) -> Result<(), ApiError> {
        let request = self.agent.delete(format!("{}{path}", self.address));
        match self.read("DELETE", path, self.with_token(request)?.call()) {
            Ok(_) | Err(ApiError::Refused { status: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn with_token<B>(&self, request: RequestBuilder<B>) -> Result<RequestBuilder<B>, ApiError> {
        let Some(path) = &self.token else { return Ok(request) };
        let token = fs::read_to_string(path).map(Zeroizing::new);
        let token = token.map_err(|cause| ApiError::File { path: path.clone(), cause })?;
        Ok(request.header("authorization", format!("Bearer {}", token.trim())))
    }

    fn read(
        &self,
        method: &'static str,
        path: &str,
        response: Result<Response<Body>, ureq::Error>,
    ) -> Result<Vec<u8>, ApiError> {
        let failed = |cause| ApiError::Connection { address: self.address.clone(), cause };
        let mut response = response.map_err(failed)?;
        let body =
            response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec().map_err(failed)?;
        if response.status().is_success() {
            return Ok(body);
        }
        let status = serde_json::from_slice::<Value>(&body).ok();
        let text = status.as_ref().and_then(|status| status["message"].as_str()).unwrap_or("no reason given");
        let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
        Err(ApiError::Refused {
            method,
            path: path.to_owned(),
            status: response.status().as_u16(),
            text: text.chars().take(MAX_MESSAGE).map(plain).collect(),
        })
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, ApiError> {
    let pem = fs::read(path).map_err(|cause| ApiError::File { path: path.to_owned(), cause })?;
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    let found: Vec<_> = parse_pem(&pem).filter_map(certificate).collect();
    if found.is_empty() { Err(ApiError::NoCertificate(path.to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_files_are_looked_at_first() {
        let new = |address: &str, token: Option<&str>| {
            ApiServer::new(address, None, token.map(PathBuf::from))
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(new("http://127.0.0.1:8001/", None), Ok(()));
        assert_eq!(new("https://[fd00::1]:6443", Some("/token")), Ok(()));
        assert!(new("http://api:80", Some("/token")).unwrap_err().contains("others could read the token"));
        for bad in ["", "api", "api:443", "ftp://api", "https://"] {
            assert!(new(bad, None).unwrap_err().contains("https://HOST:PORT"), "{bad}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        let with_ca = || ApiServer::new("https://api", Some(&file), None).unwrap_err().to_string();
        assert!(with_ca().contains("cannot be read"));
        fs::write(&file, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n").unwrap();
        assert!(with_ca().contains("has no certificate"));
    }
}
