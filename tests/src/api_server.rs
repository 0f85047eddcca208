//! An API server of Kubernetes as a DRA driver sees it: objects by their paths, over HTTP.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::spawn;

/// A running API server. Its thread ends with the process.
#[derive(Debug)]
pub struct ApiServer {
    address: String,
    objects: Arc<Mutex<Objects>>,
}

#[derive(Debug, Default)]
struct Objects {
    by_path: BTreeMap<String, Value>,
    version: u64,
}

impl ApiServer {
    /// Starts one on a free loopback port.
    ///
    /// # Panics
    /// When there is none.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let objects = Arc::<Mutex<Objects>>::default();
        let own = Arc::clone(&objects);
        spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that leaves is none of our concern.
                let _ = answer(stream, &own);
            }
        });
        Self { address, objects }
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sets an object, or removes it.
    pub fn set(&self, path: &str, object: Option<Value>) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        match object {
            Some(object) => objects.by_path.insert(path.to_owned(), object),
            None => objects.by_path.remove(path),
        };
    }

    /// An object.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).by_path.get(path).cloned()
    }
}

fn answer(stream: TcpStream, objects: &Mutex<Objects>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let (method, path) =
        (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        if let Some(("content-length", value)) = header.to_ascii_lowercase().split_once(':') {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = path.split('?').next().unwrap_or_default();
    let (status, reply) = respond(&method, path, serde_json::from_slice(&body).ok(), objects);
    let reply = reply.to_string();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", reply.len());
    reader.into_inner().write_all((head + &reply).as_bytes())
}

fn respond(method: &str, path: &str, body: Option<Value>, objects: &Mutex<Objects>) -> (&'static str, Value) {
    let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
    let refused = |text: &str| json!({ "kind": "Status", "message": text });
    let found = objects.by_path.get(path).cloned();
    let mut store = |path: String, mut object: Value| {
        objects.version += 1;
        object["metadata"]["resourceVersion"] = json!(objects.version.to_string());
        objects.by_path.insert(path, object.clone());
        object
    };
    match (method, found, body) {
        ("GET", Some(object), _) => ("200 OK", object),
        ("GET", None, _) if path.ends_with("/resourceslices") => {
            let below = format!("{path}/");
            let slices = objects.by_path.iter().filter(|(path, _)| path.starts_with(&below));
            ("200 OK", json!({ "items": slices.map(|(_, slice)| slice.clone()).collect::<Vec<_>>() }))
        }
        ("POST", _, Some(object)) => {
            let own = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
            ("201 Created", store(own, object))
        }
        ("PUT", Some(old), Some(object))
            if old["metadata"]["resourceVersion"] == object["metadata"]["resourceVersion"] =>
        {
            ("200 OK", store(path.to_owned(), object))
        }
        ("PUT", Some(_), Some(_)) => ("409 Conflict", refused("the object has been modified")),
        ("DELETE", Some(object), _) => {
            objects.by_path.remove(path);
            ("200 OK", object)
        }
        _ => ("404 Not Found", refused("not found")),
    }
}
