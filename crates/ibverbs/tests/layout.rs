//! Our declarations against the headers of rdma-core, where this machine has them and a C compiler.

use causeway_ibverbs::sys;
use core::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

/// The size of a structure or the offset of a field: what C has to compute, and what we have.
struct Expected {
    c: String,
    ours: usize,
}

macro_rules! expected {
    ($into:ident; $($structure:ident { $($field:ident $(= $c_field:literal)?),* $(,)? })*) => {$(
        $($into.push(Expected {
            c: format!("offsetof(struct {}, {})", stringify!($structure), [$($c_field,)? stringify!($field)][0]),
            ours: offset_of!(sys::$structure, $field),
        });)*
    )*};
}

macro_rules! sizes {
    ($into:ident; $($structure:ident),* $(,)?) => {$(
        $into.push(Expected {
            c: format!("sizeof(struct {})", stringify!($structure)),
            ours: size_of::<sys::$structure>(),
        });
    )*};
}

/// Compiles and runs a program that prints what C says; `None` where that cannot be tried here.
fn ask_c(header: &str, expected: &[Expected]) -> Option<Vec<usize>> {
    let found = std::env::var_os("CPATH")
        .iter()
        .flat_map(std::env::split_paths)
        .chain([Path::new("/usr/include").to_owned()])
        .any(|folder| folder.join(header).exists());
    if !found {
        eprintln!("skipped: <{header}> is not on this machine (packages libibverbs-dev, librdmacm-dev)");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let lines: String =
        expected.iter().map(|one| format!("printf(\"%zu\\n\", (size_t){});\n", one.c)).collect();
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <{header}>\nint main(void) {{\n{lines}return 0; }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let Ok(compiled) = Command::new("cc").arg(&source).arg("-o").arg(&program).status() else {
        eprintln!("skipped: there is no C compiler `cc` on this machine");
        return None;
    };
    assert!(compiled.success(), "the program that prints the layouts does not compile");
    let output = Command::new(&program).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect())
}

fn compare(header: &str, expected: &[Expected]) {
    let Some(theirs) = ask_c(header, expected) else { return };
    assert_eq!(theirs.len(), expected.len());
    for (one, theirs) in expected.iter().zip(theirs) {
        assert_eq!(one.ours, theirs, "{}", one.c);
    }
}

#[test]
fn verbs_structures_are_laid_out_as_the_header_says() {
    let mut all = Vec::new();
    sizes!(
        all; ibv_gid_entry, ibv_device, ibv_device_attr, ibv_port_attr, ibv_pd, ibv_mr, ibv_comp_channel, ibv_cq,
        ibv_qp, ibv_qp_cap, ibv_qp_init_attr, ibv_global_route, ibv_ah_attr, ibv_qp_attr, ibv_sge, ibv_send_wr,
        ibv_recv_wr, ibv_wc, ibv_context_ops, ibv_context,
    );
    expected!(all;
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        ibv_device { node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_device_attr {
            fw_ver, node_guid, max_mr_size, vendor_id, max_qp, max_qp_wr, device_cap_flags, max_sge, max_cq, max_cqe,
            max_mr, max_qp_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_srq_sge, max_pkeys, phys_port_cnt,
        }
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, max_msg_sz, pkey_tbl_len, lid, sm_sl, active_width, active_speed,
            phys_state, link_layer,
        }
        ibv_mr { addr, length, lkey, rkey }
        ibv_comp_channel { fd }
        ibv_cq { channel, cqe }
        ibv_qp { pd, send_cq, qp_num, state }
        ibv_qp_init_attr { send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_attr {
            qp_state, path_mtu, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap, ah_attr, pkey_index, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
        }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_sge { addr, length, lkey }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, remote_addr = "wr.rdma.remote_addr",
            rkey = "wr.rdma.rkey", _qp_type = "qp_type", _tail = "bind_mw",
        }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_wc { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, wc_flags }
        ibv_context_ops { poll_cq, req_notify_cq, post_send, post_recv }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors }
    );
    compare("infiniband/verbs.h", &all);
}

#[test]
fn structures_of_mlx5_are_laid_out_as_the_header_says() {
    let mut all = Vec::new();
    sizes!(all; ibv_qp_init_attr_ex, mlx5dv_qp_init_attr, mlx5dv_cq, mlx5dv_obj);
    expected!(all;
        ibv_qp_init_attr_ex { send_cq, recv_cq, cap, qp_type, sq_sig_all, comp_mask, pd, source_qpn, send_ops_flags }
        mlx5dv_qp_init_attr { create_flags, send_ops_flags }
        mlx5dv_qp { dbrec, sq, rq, bf_reg = "bf.reg", bf_size = "bf.size", comp_mask, uar_mmap_offset }
        mlx5dv_cq { buf, dbrec, cqe_cnt, cqe_size, cqn, comp_mask }
        mlx5dv_obj { qp_in = "qp.in", qp_out = "qp.out", cq_in = "cq.in", cq_out = "cq.out" }
    );
    compare("infiniband/mlx5dv.h", &all);
}

#[test]
fn connection_manager_structures_are_laid_out_as_the_header_says() {
    let mut all = Vec::new();
    sizes!(all; rdma_event_channel, rdma_conn_param);
    expected!(all;
        rdma_cm_id { verbs, channel, context, qp }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
            rnr_retry_count, srq, qp_num,
        }
        rdma_cm_event { id, listen_id, event, status, conn = "param.conn" }
    );
    compare("rdma/rdma_cma.h", &all);
}
