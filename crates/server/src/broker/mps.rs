//! NVIDIA's MPS: shares of a GPU where the kernels of several workers run at the same time.
//!
//! Under MPS workers take no turns. Instead the driver gives each of them a part of the multiprocessors, which it reads when
//! it starts, so that such a worker is not one that is kept ready. What a peer does not use of its part stays idle.

use causeway_access::keys::clients::Clients;
use causeway_access::keys::groups::PeerLimits;
use causeway_config::table::CUDA_MPS_ACTIVE_THREAD_PERCENTAGE as PERCENTAGE;
use causeway_sandbox::Plan;
use jiff::Timestamp;

use crate::admission::Source;
use crate::back_end::GpuChoice;

/// Whether the kernels of workers run at the same time. Where the software GPU may take the driver's place, this is not known
/// before a worker has started, and workers take turns.
pub fn is_used(gpu: GpuChoice, plan: &Plan) -> bool {
    let has_driver = matches!(gpu, GpuChoice::Driver | GpuChoice::Auto { allows_software: false });
    has_driver && plan.has_mps()
}

/// What the worker of a peer gets in its environment: a percentage, if the list of clients has shares. `of_server` is what the
/// server's own variable says, which holds for each of its workers: none gets more.
pub fn environment(
    clients: &Clients,
    peer: Source,
    limits: &PeerLimits,
    of_server: Option<&str>,
) -> Option<(String, String)> {
    if !clients.has_shares() {
        return None;
    }
    let client = match peer {
        Source::Client(name) => Some(name),
        Source::Network(_) | Source::Machine(_) | Source::User(_) => None,
    };
    let percentage = clients.percentage(client, limits, Timestamp::now());
    let bound = of_server.and_then(|text| text.trim().parse::<f64>().ok());
    if bound.is_some_and(|bound| bound <= f64::from(percentage)) || percentage >= 100 {
        return None;
    }
    Some((PERCENTAGE.name.to_owned(), percentage.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::keys::clients::Client;
    use causeway_access::keys::limits::ClientLimits;

    #[test]
    fn each_client_gets_its_part_and_no_more_than_the_server() {
        let mut clients = Clients::default();
        let [ada, bob] = ["ada", "bob"].map(|name| name.parse().unwrap());
        clients.named = [ada, bob].map(|name| (name, Client::new(name))).into();
        let of = |clients: &Clients, name, of_server| {
            let limits = clients.limits_of_client(name);
            environment(clients, Source::Client(name), &limits, of_server).map(|(_, percentage)| percentage)
        };
        assert_eq!(of(&clients, ada, None), None, "there are no shares");
        let limits = ClientLimits { share: Some(3), ..ClientLimits::default() };
        clients.named.get_mut(&ada).unwrap().limits = limits;
        assert_eq!(
            (of(&clients, ada, None).as_deref(), of(&clients, bob, None).as_deref()),
            (Some("75"), Some("25"))
        );
        assert_eq!(
            (of(&clients, ada, Some("50")), of(&clients, bob, Some("50")).as_deref()),
            (None, Some("25"))
        );
        assert_eq!(of(&clients, ada, Some("all")).as_deref(), Some("75"));
        clients.named.remove(&bob);
        assert_eq!(of(&clients, ada, None), None, "it is alone");
        let limits = clients.limits_of_other(|_| false);
        let other = environment(&clients, Source::User(7), &limits, None);
        assert_eq!(other, Some((PERCENTAGE.name.to_owned(), "25".to_owned())));
    }
}
