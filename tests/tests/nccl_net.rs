//! NCCL's network plugin with GPU memory: paths of messages, and their bytes.

use causeway_tests::built::{nccl_plugin, source_tree};
use causeway_tests::client::through_run;
use causeway_tests::process::run;
use causeway_tests::server::Server;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// What the plugin says where a receiver copies from the sender's memory by itself.
const DIRECT: &str = "are copied from GPU to GPU";

#[test]
fn gpu_memory_goes_directly_where_it_can_be_exported_and_else_through_the_host() {
    let server = Server::start();
    for (memory, path, is_direct) in [("gpu", "auto", true), ("plain", "auto", false), ("gpu", "tcp", false)]
    {
        let mut command = through_run(Some(&server.connect_string()), Path::new("python3"));
        command.arg(source_tree().join("tools/gpu_test/nccl_net.py"));
        command.args([
            "--quick",
            "--channels",
            "2",
            "--sizes",
            "0,8,4096,700000,3000001",
            "--memory",
            memory,
        ]);
        command.arg("--plugin").arg(nccl_plugin());
        command.envs([("CAUSEWAY_NCCL_GPU", "on"), ("CAUSEWAY_NCCL_PATH", path), ("NCCL_DEBUG", "INFO")]);
        let outcome = run(&mut command, LIMIT).must_succeed();
        assert!(outcome.stdout.contains("every byte was right"), "{memory} {path}: {outcome}");
        assert_eq!(outcome.stderr.contains(DIRECT), is_direct, "{memory} {path}: {outcome}");
    }
}
