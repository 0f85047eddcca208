//! Kubernetes: the manifests and the Helm chart are such that a cluster and the program take them.

use causeway_tests::built::{causeway, source_tree};
use causeway_tests::process::run;
use std::process::Command;
use std::time::Duration;

/// For packages of Python, which `make test` has installed, and for a server to become ready.
const LIMIT: Duration = Duration::from_secs(600);

#[test]
fn manifests_and_chart_are_such_that_a_cluster_and_the_program_take_them() {
    let mut packages = Command::new("scripts/python-packages.sh");
    let packages = run(packages.arg("kubernetes").current_dir(source_tree()), LIMIT).must_succeed();
    let mut tool = Command::new("python3");
    tool.args(["-B", "tools/kubernetes"]).arg(causeway()).current_dir(source_tree());
    run(tool.env("PYTHONPATH", packages.stdout.trim()), LIMIT).must_succeed();
}
