//! API server over TLS: its certificate, the token, and what it answers. `tls/` has an authority's certificate, a
//! server's for 127.0.0.1 with its key, and the certificate of another authority.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

use causeway_kubernetes::api_server::{ApiError, ApiServer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// Serves one connection, and returns what was asked: the first line, and the token.
fn serve_once(
    status: &'static str,
    body: &'static str,
) -> (SocketAddr, JoinHandle<Option<(String, String)>>) {
    let certificates =
        CertificateDer::pem_file_iter(file("server.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(certificates, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
        let mut stream = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            // A client that does not trust the certificate says no more.
            if stream.read_line(&mut line).ok()? <= 2 {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let of = |name: &str| {
            let line =
                head.iter().find_map(|line| line.to_ascii_lowercase().strip_prefix(name).map(str::to_owned));
            line.unwrap_or_default().trim().to_owned()
        };
        let mut sent = vec![0; of("content-length:").parse().unwrap_or(0)];
        stream.read_exact(&mut sent).ok()?;
        let stream = stream.get_mut();
        write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
        stream.conn.send_close_notify();
        stream.flush().ok()?;
        Some((head.first()?.clone(), of("authorization:")))
    });
    (address, served)
}

fn server(address: SocketAddr, authority: &str, token: Option<PathBuf>) -> ApiServer {
    ApiServer::new(&format!("https://{address}"), Some(&file(authority)), token).unwrap()
}

#[test]
fn requests_carry_the_token_to_the_server_that_the_authority_names() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    // Kubernetes replaces it: each request reads it anew.
    for content in ["first\n", "second\n"] {
        fs::write(&token, content).unwrap();
        let (address, served) = serve_once("200 OK", r#"{"kind":"ResourceSliceList"}"#);
        let api = server(address, "ca.pem", Some(token.clone()));
        let object = api.get_json("/apis/resource.k8s.io/v1/resourceslices").unwrap().unwrap();
        assert_eq!(object["kind"], "ResourceSliceList");
        let (line, authorization) = served.join().unwrap().unwrap();
        assert_eq!(line, "GET /apis/resource.k8s.io/v1/resourceslices HTTP/1.1");
        assert_eq!(authorization, format!("bearer {}", content.trim()));
    }
}

#[test]
fn a_server_of_another_authority_gets_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "secret").unwrap();
    let (address, served) = serve_once("200 OK", "{}");
    let error = server(address, "other.pem", Some(token)).get("/api").unwrap_err();
    assert!(matches!(error, ApiError::Connection { .. }), "{error}");
    assert_eq!(served.join().unwrap(), None);
}

#[test]
fn refusals_are_in_the_servers_words() {
    let (address, served) = serve_once("403 Forbidden", "{\"message\":\"slices are\\u001b[2J forbidden\"}");
    let error = server(address, "ca.pem", None).create("/apis", &json!({})).unwrap_err().to_string();
    assert!(error.contains("slices are [2J forbidden") && error.contains("ClusterRole"), "{error}");
    assert!(served.join().unwrap().is_some());
}
