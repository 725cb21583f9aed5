// Made by `cargo xtask ucx-bindings` from the headers of UCX 1.13; not to be edited.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::FILE;

use super::types::*;

functions! {
    ucp {
        fn ucp_am_data_release(worker: ucp_worker_h, data: *mut c_void);
        fn ucp_am_recv_data_nbx(worker: ucp_worker_h, data_desc: *mut c_void, buffer: *mut c_void, count: usize, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_am_send_nbx(ep: ucp_ep_h, id: c_uint, header: *const c_void, header_length: usize, buffer: *const c_void, count: usize, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_atomic_op_nbx(ep: ucp_ep_h, opcode: ucp_atomic_op_t, buffer: *const c_void, count: usize, remote_addr: u64, rkey: ucp_rkey_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_cleanup(context_p: ucp_context_h);
        fn ucp_config_modify(config: *mut ucp_config_t, name: *const c_char, value: *const c_char) -> ucs_status_t;
        fn ucp_config_print(config: *const ucp_config_t, stream: *mut FILE, title: *const c_char, print_flags: ucs_config_print_flags_t);
        fn ucp_config_read(env_prefix: *const c_char, filename: *const c_char, config_p: *mut *mut ucp_config_t) -> ucs_status_t;
        fn ucp_config_release(config: *mut ucp_config_t);
        fn ucp_conn_request_query(conn_request: ucp_conn_request_h, attr: *mut ucp_conn_request_attr_t) -> ucs_status_t;
        fn ucp_context_print_info(context: ucp_context_h, stream: *mut FILE);
        fn ucp_context_query(context_p: ucp_context_h, attr: *mut ucp_context_attr_t) -> ucs_status_t;
        fn ucp_ep_close_nbx(ep: ucp_ep_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_ep_create(worker: ucp_worker_h, params: *const ucp_ep_params_t, ep_p: *mut ucp_ep_h) -> ucs_status_t;
        fn ucp_ep_flush_nbx(ep: ucp_ep_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_ep_print_info(ep: ucp_ep_h, stream: *mut FILE);
        fn ucp_ep_query(ep: ucp_ep_h, attr: *mut ucp_ep_attr_t) -> ucs_status_t;
        fn ucp_ep_rkey_unpack(ep: ucp_ep_h, rkey_buffer: *const c_void, rkey_p: *mut ucp_rkey_h) -> ucs_status_t;
        fn ucp_get_nbx(ep: ucp_ep_h, buffer: *mut c_void, count: usize, remote_addr: u64, rkey: ucp_rkey_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_get_version(major_version: *mut c_uint, minor_version: *mut c_uint, release_number: *mut c_uint);
        fn ucp_get_version_string() -> *const c_char;
        fn ucp_init_version(api_major_version: c_uint, api_minor_version: c_uint, params: *const ucp_params_t, config: *const ucp_config_t, context_p: *mut ucp_context_h) -> ucs_status_t;
        fn ucp_lib_query(attr: *mut ucp_lib_attr_t) -> ucs_status_t;
        fn ucp_listener_create(worker: ucp_worker_h, params: *const ucp_listener_params_t, listener_p: *mut ucp_listener_h) -> ucs_status_t;
        fn ucp_listener_destroy(listener: ucp_listener_h);
        fn ucp_listener_query(listener: ucp_listener_h, attr: *mut ucp_listener_attr_t) -> ucs_status_t;
        fn ucp_listener_reject(listener: ucp_listener_h, conn_request: ucp_conn_request_h) -> ucs_status_t;
        fn ucp_mem_map(context: ucp_context_h, params: *const ucp_mem_map_params_t, memh_p: *mut ucp_mem_h) -> ucs_status_t;
        fn ucp_mem_query(memh: ucp_mem_h, attr: *mut ucp_mem_attr_t) -> ucs_status_t;
        fn ucp_mem_unmap(context: ucp_context_h, memh: ucp_mem_h) -> ucs_status_t;
        fn ucp_put_nbx(ep: ucp_ep_h, buffer: *const c_void, count: usize, remote_addr: u64, rkey: ucp_rkey_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_request_cancel(worker: ucp_worker_h, request: *mut c_void);
        fn ucp_request_check_status(request: *mut c_void) -> ucs_status_t;
        fn ucp_request_free(request: *mut c_void);
        fn ucp_rkey_buffer_release(rkey_buffer: *mut c_void);
        fn ucp_rkey_destroy(rkey: ucp_rkey_h);
        fn ucp_rkey_pack(context: ucp_context_h, memh: ucp_mem_h, rkey_buffer_p: *mut *mut c_void, size_p: *mut usize) -> ucs_status_t;
        fn ucp_rkey_ptr(rkey: ucp_rkey_h, raddr: u64, addr_p: *mut *mut c_void) -> ucs_status_t;
        fn ucp_tag_msg_recv_nbx(worker: ucp_worker_h, buffer: *mut c_void, count: usize, message: ucp_tag_message_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_tag_probe_nb(worker: ucp_worker_h, tag: ucp_tag_t, tag_mask: ucp_tag_t, remove: c_int, info: *mut ucp_tag_recv_info_t) -> ucp_tag_message_h;
        fn ucp_tag_recv_nbx(worker: ucp_worker_h, buffer: *mut c_void, count: usize, tag: ucp_tag_t, tag_mask: ucp_tag_t, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_tag_send_nbx(ep: ucp_ep_h, buffer: *const c_void, count: usize, tag: ucp_tag_t, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_tag_send_sync_nbx(ep: ucp_ep_h, buffer: *const c_void, count: usize, tag: ucp_tag_t, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_worker_address_query(address: *mut ucp_address_t, attr: *mut ucp_worker_address_attr_t) -> ucs_status_t;
        fn ucp_worker_arm(worker: ucp_worker_h) -> ucs_status_t;
        fn ucp_worker_create(context: ucp_context_h, params: *const ucp_worker_params_t, worker_p: *mut ucp_worker_h) -> ucs_status_t;
        fn ucp_worker_destroy(worker: ucp_worker_h);
        fn ucp_worker_fence(worker: ucp_worker_h) -> ucs_status_t;
        fn ucp_worker_flush_nbx(worker: ucp_worker_h, param: *const ucp_request_param_t) -> ucs_status_ptr_t;
        fn ucp_worker_get_address(worker: ucp_worker_h, address_p: *mut *mut ucp_address_t, address_length_p: *mut usize) -> ucs_status_t;
        fn ucp_worker_get_efd(worker: ucp_worker_h, fd: *mut c_int) -> ucs_status_t;
        fn ucp_worker_print_info(worker: ucp_worker_h, stream: *mut FILE);
        fn ucp_worker_progress(worker: ucp_worker_h) -> c_uint;
        fn ucp_worker_query(worker: ucp_worker_h, attr: *mut ucp_worker_attr_t) -> ucs_status_t;
        fn ucp_worker_release_address(worker: ucp_worker_h, address: *mut ucp_address_t);
        fn ucp_worker_set_am_recv_handler(worker: ucp_worker_h, param: *const ucp_am_handler_param_t) -> ucs_status_t;
        fn ucp_worker_signal(worker: ucp_worker_h) -> ucs_status_t;
        fn ucp_worker_wait(worker: ucp_worker_h) -> ucs_status_t;
    }
    ucs {
        fn ucs_status_string(status: ucs_status_t) -> *const c_char;
    }
}
