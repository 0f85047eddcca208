//! Software GPU: the settings of the server's environment.

use causeway_tests::built::{causeway, cuda_program};
use causeway_tests::client::by_itself;
use causeway_tests::process::{Outcome, run};
use causeway_tests::server::{OPEN, Server, forget_environment};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The command line of a server with these variables.
fn command(variables: &[(&str, &str)]) -> Command {
    let mut command = Server::command(&OPEN);
    command.envs(variables.iter().copied());
    command
}

/// What `causeway devices` says of a server with these variables.
fn devices(variables: &[(&str, &str)]) -> Outcome {
    let server = Server::start_command(command(variables));
    let mut devices = Command::new(causeway());
    forget_environment(&mut devices);
    let outcome = run(devices.args(["devices", "--on", &server.connect_string()]), LIMIT);
    server.must_be_well();
    outcome
}

#[test]
fn the_compute_capability_can_be_chosen_among_those_that_there_are() {
    for (capability, name) in [(None, "12.0"), (Some("7.5"), "7.5"), (Some("10.3"), "10.3")] {
        let variables: Vec<_> =
            capability.map(|it| ("CAUSEWAY_SOFTWARE_GPU_CAPABILITY", it)).into_iter().collect();
        let outcome = devices(&variables).must_succeed();
        assert!(outcome.stdout.contains(name), "{outcome}");
    }
    let refused = run(&mut command(&[("CAUSEWAY_SOFTWARE_GPU_CAPABILITY", "9.1")]), LIMIT);
    assert_eq!(refused.code(), Some(1), "{refused}");
    let wanted = "CAUSEWAY_SOFTWARE_GPU_CAPABILITY=9.1 cannot be used: give 5.0, ";
    assert!(refused.stderr.contains(wanted) && refused.stderr.contains(" 9.0, "), "{refused}");
}

#[test]
fn the_servers_list_of_visible_devices_is_obeyed() {
    const COUNT: (&str, &str) = ("CAUSEWAY_SOFTWARE_GPU_DEVICES", "3");
    let uuids = |outcome: &Outcome| -> Vec<String> {
        let words = outcome.stdout.split_whitespace();
        words.filter(|word| word.starts_with("GPU-")).map(str::to_owned).collect()
    };
    let all = uuids(&devices(&[COUNT]).must_succeed());
    assert_eq!(all.len(), 3);
    let by_uuid = format!("{},{}", all[1], all[0]);
    for (list, wanted) in [("2,0", vec![2, 0]), ("1,3,0", vec![1]), (by_uuid.as_str(), vec![1, 0])] {
        let found = uuids(&devices(&[COUNT, ("CUDA_VISIBLE_DEVICES", list)]).must_succeed());
        assert_eq!(found, wanted.into_iter().map(|place| all[place].clone()).collect::<Vec<_>>(), "{list}");
    }
    // A program's list chooses among those that the server offers.
    let server = Server::start_command(command(&[COUNT, ("CUDA_VISIBLE_DEVICES", "2,0")]));
    for (list, works) in [("1", true), ("2", false), ("1,1", false)] {
        let mut program = by_itself(&server.connect_string(), &cuda_program("vector_add"));
        let outcome = run(program.env("CUDA_VISIBLE_DEVICES", list), LIMIT);
        assert_eq!(outcome.code() == Some(0), works, "{outcome}");
    }
    server.must_be_well();
    // With none there is nothing to offer, and the client is told which list it is.
    let server = Server::start_command(command(&[COUNT, ("CUDA_VISIBLE_DEVICES", "3")]));
    let outcome = run(&mut by_itself(&server.connect_string(), &cuda_program("vector_add")), LIMIT);
    assert!(
        outcome.code() != Some(0) && outcome.stderr.contains("`3` where the server was started"),
        "{outcome}"
    );
}
