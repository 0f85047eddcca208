//! Calls of an MPI: every one with a buffer comes to the interposer, and copies complete in every one that blocks.

use causeway_tests::mpi::{Mpi, new_nonce};
use causeway_tests::process::run;
use causeway_tests::server::Server;
use std::collections::BTreeSet;
use std::time::Duration;

/// Calls of the MPI that end whatever other processes do: they are local, only begin something (one-sided ones, too), or
/// are one rank's alone (of files).
const LOCAL: &str = "\
    MPI_T_* MPI_Info_* MPI_Group_* MPI_Type_* MPI_Op_* MPI_Errhandler_* MPI_Error_* MPI_Add_error_* \
    MPI_Attr_* MPI_Keyval_* MPI_Status_* MPI_Get_* MPI_Address MPI_Aint* MPI_Pack* MPI_Unpack* MPI_Request_* \
    MPI_Message_* MPI_Grequest_* MPI_Session_* MPI_Test* MPI_Start* MPI_Cancel MPI_Graph_get MPI_Graph_map \
    MPI_Graph_neighbors* MPI_Graphdims_get MPI_Cart_coords MPI_Cart_get MPI_Cart_map MPI_Cart_rank \
    MPI_Cart_shift MPI_Cartdim_get MPI_Dist_graph_neighbors* MPI_Dims_create MPI_Topo_test \
    MPI_Is_thread_main MPI_Query_thread MPI_Pcontrol MPI_Register_datarep MPI_Wtick MPI_Wtime MPI_Alloc_mem \
    MPI_Free_mem MPI_Buffer_attach MPI_Reduce_local MPI_Init* MPI_Finalized MPI_Parrived MPI_Pready* *_c2f \
    *_f2c *_init *_get_* *_call_errhandler *_create_errhandler *_set_errhandler *_create_keyval \
    *_free_keyval *_set_attr *_delete_attr *_set_name MPI_Comm_compare MPI_Comm_group MPI_Comm_rank \
    MPI_Comm_remote_* MPI_Comm_size MPI_Comm_test_inter MPI_Win_attach MPI_Win_detach MPI_Win_shared_query \
    MPI_Win_sync MPI_Win_test MPI_I* MPI_Comm_idup* MPI_Put MPI_Get MPI_Accumulate MPI_Compare_and_swap \
    MPI_Fetch_and_op MPI_Raccumulate MPI_Rput MPI_Rget* MPI_File_delete MPI_File_i* MPI_File_read \
    MPI_File_read_at MPI_File_read_shared MPI_File_seek MPI_File_write MPI_File_write_at \
    MPI_File_write_shared";

/// Calls that wait for a process which this test does not have (one in `mpi.rs` does), those of sessions, and the end of a
/// job.
const UNTRIED: &str = "\
    MPI_Abort MPI_Finalize MPI_Comm_accept MPI_Comm_connect MPI_Comm_join MPI_Comm_spawn* MPI_Close_port \
    MPI_Open_port MPI_Lookup_name MPI_Publish_name MPI_Unpublish_name MPI_Comm_create_from_group \
    MPI_Intercomm_create_from_groups";

/// The functions that an MPI's headers declare, each with its parameters.
fn prototypes_of(mpi: Mpi) -> Vec<(String, String)> {
    let mut compiler = std::process::Command::new(format!("mpicc.{}", mpi.name()));
    let header = mpi.folder().join("header.c");
    let text = "#include <mpi.h>\n#if __has_include(<mpi-ext.h>)\n#include <mpi-ext.h>\n#endif\n";
    std::fs::write(&header, text).expect("the folder can be written to");
    let text = run(compiler.arg("-E").arg(&header), Duration::from_secs(60)).must_succeed().stdout;
    let mut found = Vec::new();
    for (at, _) in text.match_indices("MPI") {
        let is_begin = !text[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        let end = text[at..].find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(0);
        let (name, rest) = text[at..].split_at(end);
        let Some(own) = name.strip_prefix("MPI_").or_else(|| name.strip_prefix("MPIX_")) else { continue };
        let is_function = rest.trim_start().starts_with('(') && own.starts_with(char::is_uppercase);
        if is_begin && is_function && !name.ends_with("_function") && !name.ends_with("_fn") {
            let parameters = rest.split(')').next().unwrap_or_default();
            found.push((name.to_owned(), parameters.to_owned()));
        }
    }
    found
}

/// The names of those of the standard.
fn functions_of(mpi: Mpi) -> BTreeSet<String> {
    let names = prototypes_of(mpi).into_iter().map(|(name, _)| name).filter(|name| name.starts_with("MPI_"));
    names.map(|name| name.strip_suffix("_c").unwrap_or(&name).to_owned()).collect()
}

/// Calls with addresses that are of no elements to move.
const NO_BUFFERS: &str = "\
    MPI_T_* *_keyval MPI_Keyval_create MPI_Attr_* *_get_attr *_set_attr MPI_Alloc_mem MPI_Free_mem MPI_Address \
    MPI_Get_address *Grequest_* MPI_Register_datarep* MPI_Win_allocate* MPI_Win_shared_query*";

#[test]
fn every_call_with_a_buffer_comes_to_the_interposer() {
    for mpi in Mpi::ALL {
        let mut nm = std::process::Command::new("nm");
        let symbols = run(nm.args(["-D", "--defined-only"]).arg(mpi.interposer()), Duration::from_secs(60));
        let symbols = symbols.must_succeed().stdout;
        let ours: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
        let with_buffers: Vec<_> =
            prototypes_of(mpi).into_iter().filter(|(_, parameters)| parameters.contains("void *")).collect();
        assert!(with_buffers.len() > 150, "{mpi:?} has {} calls with buffers", with_buffers.len());
        let is_past = |name: &str| {
            !ours.contains(name) && !NO_BUFFERS.split_whitespace().any(|pattern| matches(pattern, name))
        };
        let past: BTreeSet<_> =
            with_buffers.into_iter().map(|(name, _)| name).filter(|name| is_past(name)).collect();
        assert!(past.is_empty(), "{mpi:?}: these get addresses of GPUs: {past:?}");
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split('*').collect::<Vec<_>>()[..] {
        [whole] => whole == name,
        [start, end] => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        [_, inner, _] => name.contains(inner),
        _ => false,
    }
}

#[test]
fn copies_complete_in_every_blocking_call() {
    let server = Server::start();
    for mpi in Mpi::ALL {
        let program = mpi.folder().join("blocking");
        let names = run(std::process::Command::new(&program).arg("names"), Duration::from_secs(60))
            .must_succeed()
            .stdout;
        let tried: BTreeSet<&str> = names.split_whitespace().collect();
        let is_known = |name: &String| {
            tried.contains(name.as_str())
                || LOCAL
                    .split_whitespace()
                    .chain(UNTRIED.split_whitespace())
                    .any(|pattern| matches(pattern, name))
        };
        let functions = functions_of(mpi);
        assert!(functions.len() > 300, "{mpi:?} has {} functions", functions.len());
        let unknown: Vec<_> = functions.into_iter().filter(|name| !is_known(name)).collect();
        assert!(
            unknown.is_empty(),
            "{mpi:?}: are these local, or to be tried in tests/mpi/blocking.c? {unknown:?}"
        );
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut command = mpi.command(&server, 2, Some(&new_nonce()));
        // A channel by which the receiver copies by itself, behind the program's back.
        command.env("CAUSEWAY_COMM_CHANNELS", "ipc").arg(&program).arg(folder.path());
        let outcome = run(&mut command, Duration::from_secs(120)).must_succeed();
        assert_eq!(outcome.stdout.matches("blocking: ok").count(), 2, "{outcome}");
        let under_way =
            outcome.stdout.lines().filter_map(|line| line.strip_prefix("copies were under way in "));
        let calls = under_way.filter_map(|rest| rest.split(' ').next()?.parse::<u32>().ok());
        assert!(calls.sum::<u32>() >= 20, "too little was tried: {outcome}");
    }
    server.must_be_well();
}
