//! Publication of servers' GPUs: a ResourceSlice for each server, kept as the server is.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use causeway_access::Target;
use causeway_kubernetes::api_server::{ApiError, ApiServer};
use causeway_kubernetes::dra::slice::{API_VERSION, Publication, PublishedGpu};
use causeway_wire::status::ServerStatus;

use crate::status_query::status_over;

/// The interval between two queries of a server.
const INTERVAL: Duration = Duration::from_secs(5);

/// Interval at which a slice is compared with what was published.
const REVISIT_INTERVAL: Duration = Duration::from_secs(60);

/// Publishes each server's GPUs from now on, from a thread of its own, and removes slices of servers that are not named
/// any more.
pub fn start(
    servers: &[Target],
    pools: &[String],
    api: &ApiServer,
    publication: &Publication,
) -> io::Result<()> {
    for (target, pool) in servers.iter().cloned().zip(pools.iter().cloned()) {
        let (api, publication) = (api.clone(), publication.clone());
        thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || keep_published(&target, &pool, &api, &publication))?;
    }
    let (api, publication) = (api.clone(), publication.clone());
    let named: Vec<String> = pools.iter().map(|pool| publication.slice_name(pool)).collect();
    let remove = move || {
        while let Err(error) = remove_others(&named, &api, &publication) {
            tracing::warn!(
                "removing the slices of servers that are no longer named failed and will be \
                retried: {error}"
            );
            thread::sleep(REVISIT_INTERVAL);
        }
    };
    thread::Builder::new().name("old slices".to_owned()).spawn(remove).map(drop)
}

fn keep_published(target: &Target, pool: &str, api: &ApiServer, publication: &Publication) {
    let mut connection = None;
    let mut published: Option<(Vec<PublishedGpu>, Instant)> = None;
    let mut last_error = String::new();
    loop {
        let (gpus, cause) = match status_over(&mut connection, target) {
            Ok(status) => (gpus_of(&status), None),
            // What cannot be had, the scheduler must not give to anybody.
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let is_current =
            published.as_ref().is_some_and(|(last, at)| *last == gpus && at.elapsed() < REVISIT_INTERVAL);
        if !is_current {
            match publish(pool, &gpus, api, publication) {
                Ok(has_changed) => {
                    if has_changed {
                        let cause = cause.as_deref().unwrap_or("it answers");
                        tracing::info!(server = %target, gpus = gpus.len(), "its GPUs are published: {cause}");
                    }
                    published = Some((gpus, Instant::now()));
                    last_error.clear();
                }
                // Another publisher was faster; its slice is looked at next time.
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    let error = error.to_string();
                    if error != last_error {
                        tracing::warn!(server = %target, "its GPUs are not published: {error}");
                        last_error = error;
                    }
                }
            }
        }
        thread::sleep(INTERVAL);
    }
}

/// The GPUs that a client would get which comes now.
fn gpus_of(status: &ServerStatus) -> Vec<PublishedGpu> {
    let devices = status.devices.iter().filter(|_| !status.is_draining);
    let gpu = devices.map(|device| PublishedGpu {
        uuid: device.uuid.to_string(),
        model: device.name.to_string(),
        memory: device.memory_total,
    });
    gpu.collect()
}

/// Makes the slice of a pool what it should be. Whether it was not.
fn publish(
    pool: &str,
    gpus: &[PublishedGpu],
    api: &ApiServer,
    publication: &Publication,
) -> Result<bool, ApiError> {
    let list = format!("/apis/{API_VERSION}/resourceslices");
    let own = format!("{list}/{}", publication.slice_name(pool));
    let found = api.get_json(&own)?;
    let Some(slice) = publication.update(pool, gpus, found.as_ref()) else { return Ok(false) };
    match found {
        Some(_) => api.replace(&own, &slice)?,
        None => api.create(&list, &slice)?,
    }
    Ok(true)
}

fn remove_others(named: &[String], api: &ApiServer, publication: &Publication) -> Result<(), ApiError> {
    let list = format!("/apis/{API_VERSION}/resourceslices");
    let ours = format!("{list}?fieldSelector=spec.driver%3D{}", publication.driver);
    let found = api.get_json(&ours)?.unwrap_or_default();
    let names = found["items"].as_array().into_iter().flatten().filter(|slice| {
        slice["spec"]["driver"] == publication.driver.as_str()
            && slice["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "causeway"
    });
    for name in names.filter_map(|slice| slice["metadata"]["name"].as_str()) {
        if !named.iter().any(|known| known == name) {
            api.delete(&format!("{list}/{name}"))?;
            tracing::info!(slice = name, "removed the slice of a server that is no longer named");
        }
    }
    Ok(())
}
