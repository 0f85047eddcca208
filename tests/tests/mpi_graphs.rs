//! Collective calls of `libcauseway_comm` in graphs, by programs in Python, on the software GPU.

use causeway_tests::built::{causeway, client_library_folder, source_tree};
use causeway_tests::mpi::new_nonce;
use causeway_tests::process::run;
use causeway_tests::server::{Server, forget_environment};
use std::time::Duration;

/// Has so many ranks launch random graphs so many times, and lose one rank at last.
fn must_agree(server: &Server, ranks: usize, launches: usize, settings: &[(&str, &str)]) {
    let seed = format!("0x{}", &new_nonce()[..15]);
    let mut command = std::process::Command::new("python3");
    forget_environment(&mut command);
    let libraries = causeway().parent().expect("the program is in a folder");
    let search = std::env::join_paths([client_library_folder(), libraries]).expect("no colons");
    command.env("LD_LIBRARY_PATH", search).env("CAUSEWAY_ON", server.connect_string());
    command.env("CAUSEWAY_CACHE_DIR", "").envs(settings.iter().copied());
    command.arg("-B").arg(source_tree().join("tests/mpi/python_graphs.py"));
    command.args([&ranks.to_string(), &seed, &launches.to_string()]);
    let outcome = run(&mut command, Duration::from_secs(180)).must_succeed();
    assert_eq!(outcome.stdout, "ok\n", "seed {seed}: {outcome}");
}

#[test]
fn calls_in_graphs_do_what_they_are_defined_to_do() {
    let server = Server::start();
    for (ranks, launches) in [(2, 40), (3, 30), (4, 20), (8, 12)] {
        must_agree(&server, ranks, launches, &[]);
    }
    server.must_be_well();
}

#[test]
fn late_graph_launch_aborts_all_ranks() {
    let server = Server::start();
    must_agree(&server, 3, 0, &[("CAUSEWAY_COMM_GRAPH_TIMEOUT", "3")]);
    server.must_be_well();
}
