//! Choice of GPUs for a lease: which of those that are free.

use std::collections::HashSet;

/// A GPU of a pool: its server, as the pool's list names it, and its place among the server's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gpu {
    /// The server.
    pub server: String,
    /// Its place there, from 0.
    pub index: u32,
}

/// So many free GPUs; nothing where there are fewer. `servers` are those that answer, with how many GPUs each
/// has. All are of one server where one has enough, the one with the fewest free, so that others stay whole for those
/// who want many; else of as few servers as possible.
pub fn choose(servers: &[(String, u32)], taken: &HashSet<Gpu>, count: usize) -> Option<Vec<Gpu>> {
    let free_of = |(server, devices): &(String, u32)| {
        let all = (0..*devices).map(|index| Gpu { server: server.clone(), index });
        all.filter(|gpu| !taken.contains(gpu)).collect::<Vec<_>>()
    };
    let mut free: Vec<Vec<Gpu>> = servers.iter().map(free_of).collect();
    if let Some(enough) = free.iter().filter(|gpus| gpus.len() >= count).min_by_key(|gpus| gpus.len()) {
        return Some(enough[..count].to_vec());
    }
    free.sort_by_key(|gpus| core::cmp::Reverse(gpus.len()));
    let chosen: Vec<Gpu> = free.into_iter().flatten().take(count).collect();
    (chosen.len() == count).then_some(chosen)
}

/// The servers of these GPUs, each once, and the places of the GPUs among the devices of all of them, as
/// `CUDA_VISIBLE_DEVICES` names them: a program has the devices of several servers one after the other.
pub fn visible_devices(servers: &[(String, u32)], gpus: &[Gpu]) -> (Vec<String>, Vec<u32>) {
    let mut used: Vec<String> = Vec::new();
    for gpu in gpus {
        if !used.contains(&gpu.server) {
            used.push(gpu.server.clone());
        }
    }
    let devices_of =
        |name: &String| servers.iter().find(|(server, _)| server == name).map_or(0, |(_, devices)| *devices);
    let index_of = |gpu: &Gpu| {
        let before = used.iter().take_while(|server| **server != gpu.server).map(devices_of);
        before.sum::<u32>() + gpu.index
    };
    let indices = gpus.iter().map(index_of).collect();
    (used, indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(list: &[(&str, u32)]) -> Vec<(String, u32)> {
        list.iter().map(|(server, devices)| ((*server).to_owned(), *devices)).collect()
    }

    fn gpus(list: &[(&str, u32)]) -> Vec<Gpu> {
        list.iter().map(|(server, index)| Gpu { server: (*server).to_owned(), index: *index }).collect()
    }

    #[test]
    fn one_server_is_filled_before_another_is_begun() {
        let all = servers(&[("a", 4), ("b", 2)]);
        let none = HashSet::new();
        assert_eq!(choose(&all, &none, 1), Some(gpus(&[("b", 0)])));
        let taken: HashSet<Gpu> = gpus(&[("b", 0)]).into_iter().collect();
        assert_eq!(choose(&all, &taken, 1), Some(gpus(&[("b", 1)])));
        assert_eq!(choose(&all, &taken, 2), Some(gpus(&[("a", 0), ("a", 1)])));
        assert_eq!(
            choose(&all, &taken, 5),
            Some(gpus(&[("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 1)])),
            "several where one has too few"
        );
        assert_eq!(choose(&all, &taken, 6), None);
        assert_eq!(choose(&[], &none, 1), None);
    }

    #[test]
    fn devices_are_counted_over_the_servers_of_the_lease() {
        let all = servers(&[("a", 4), ("b", 2), ("c", 3)]);
        let (used, indices) = visible_devices(&all, &gpus(&[("b", 1), ("c", 0), ("c", 2)]));
        assert_eq!((used, indices), (vec!["b".to_owned(), "c".to_owned()], vec![1, 2, 4]));
    }
}
