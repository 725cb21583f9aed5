//! Makes `ucx-sys/src/bindings` from the headers of UCX: `cargo run -- FOLDER` writes `types.rs` and `functions.rs` there.
//!
//! bindgen reads the headers; what it says of types goes into one file as it is, and its functions become the
//! `functions!` of the other, from which `ucx-sys` makes both a table that is filled at run time and what is linked.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bindgen::{Builder, EnumVariation, RustEdition, RustTarget};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprLit, FnArg, ForeignItem, ForeignItemFn, Item, ItemForeignMod, Lit, ReturnType};

/// Functions of `libucp.so.0` that every supported version has, none of them deprecated.
const UCP: &[&str] = &[
    "ucp_am_data_release",
    "ucp_am_recv_data_nbx",
    "ucp_am_send_nbx",
    "ucp_atomic_op_nbx",
    "ucp_cleanup",
    "ucp_config_modify",
    "ucp_config_print",
    "ucp_config_read",
    "ucp_config_release",
    "ucp_conn_request_query",
    "ucp_context_print_info",
    "ucp_context_query",
    "ucp_ep_close_nbx",
    "ucp_ep_create",
    "ucp_ep_flush_nbx",
    "ucp_ep_print_info",
    "ucp_ep_query",
    "ucp_ep_rkey_unpack",
    "ucp_get_nbx",
    "ucp_get_version",
    "ucp_get_version_string",
    "ucp_init_version",
    "ucp_lib_query",
    "ucp_listener_create",
    "ucp_listener_destroy",
    "ucp_listener_query",
    "ucp_listener_reject",
    "ucp_mem_map",
    "ucp_mem_query",
    "ucp_mem_unmap",
    "ucp_put_nbx",
    "ucp_request_cancel",
    "ucp_request_check_status",
    "ucp_request_free",
    "ucp_rkey_buffer_release",
    "ucp_rkey_destroy",
    "ucp_rkey_pack",
    "ucp_rkey_ptr",
    "ucp_tag_msg_recv_nbx",
    "ucp_tag_probe_nb",
    "ucp_tag_recv_nbx",
    "ucp_tag_send_nbx",
    "ucp_tag_send_sync_nbx",
    "ucp_worker_address_query",
    "ucp_worker_arm",
    "ucp_worker_create",
    "ucp_worker_destroy",
    "ucp_worker_fence",
    "ucp_worker_flush_nbx",
    "ucp_worker_get_address",
    "ucp_worker_get_efd",
    "ucp_worker_print_info",
    "ucp_worker_progress",
    "ucp_worker_query",
    "ucp_worker_release_address",
    "ucp_worker_set_am_recv_handler",
    "ucp_worker_signal",
    "ucp_worker_wait",
];

/// Functions of `libucs.so.0`.
const UCS: &[&str] = &["ucs_status_string"];

/// Types that no function of the lists names, but that their callers do.
const TYPES: &[&str] = &[
    // Enumerations of bits: fields name them by their integer type.
    "ucp_.*_field",
    "ucp_am_cb_flags",
    "ucp_am_recv_attr_t",
    "ucp_atomic_op_t",
    "ucp_cb_param_flags",
    "ucp_dt_iov_t",
    "ucp_dt_type",
    "ucp_ep_close_flags_t",
    "ucp_ep_params_flags_field",
    "ucp_feature",
    "ucp_op_attr_t",
    "ucp_req_attr_field",
    "ucp_send_am_flags",
    "ucp_wakeup_event_types",
    "ucp_worker_address_flags_t",
    "ucp_worker_flags_t",
];

const HEAD: &str =
    "// Made by `cargo xtask ucx-bindings` from the headers of UCX 1.13; not to be edited.\n\n";

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("error: no folder to write to; help: cargo xtask ucx-bindings");
        return ExitCode::from(2);
    };
    match generate(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn generate(folder: &Path) -> Result<(), String> {
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/wrapper.h");
    let text = builder(header)
        .generate()
        .map_err(|error| {
            format!("{error}; help: the headers of UCX 1.13 are in Debian's package libucx-dev")
        })?
        .to_string();
    let file =
        syn::parse_file(&text).map_err(|error| format!("what bindgen wrote does not parse: {error}"))?;
    let mut types = Vec::new();
    let mut functions = Vec::new();
    for item in file.items {
        match item {
            Item::ForeignMod(ItemForeignMod { items, .. }) => {
                functions.extend(items.into_iter().filter_map(|item| match item {
                    ForeignItem::Fn(function) => Some(function),
                    _ => None,
                }));
            }
            other => types.push(other),
        }
    }
    if [number(&types, "UCP_API_MAJOR"), number(&types, "UCP_API_MINOR")] != [Some(1), Some(13)] {
        return Err(
            "the headers are not those of UCX 1.13\nhelp: Debian 12 has them in its package libucx-dev"
                .into(),
        );
    }
    let ucp = pick(&functions, UCP)?;
    let ucs = pick(&functions, UCS)?;
    let file = |tokens: TokenStream| {
        syn::parse2(tokens)
            .map(|file| format!("{HEAD}{}", prettyplease::unparse(&file)))
            .map_err(|error| format!("what was composed does not parse: {error}"))
    };
    write(&folder.join("types.rs"), &file(quote! { #(#types)* })?)?;
    // Not by prettyplease, which leaves what is inside of a macro as it comes.
    let section = |name: &str, functions: &[String]| {
        let lines: String = functions.iter().map(|line| format!("        {line}\n")).collect();
        format!("    {name} {{\n{lines}    }}\n")
    };
    let functions = format!(
        "{HEAD}use std::ffi::{{c_char, c_int, c_uint, c_void}};\n\nuse libc::FILE;\n\nuse super::types::*;\n\nfunctions! {{\n{}{}}}\n",
        section("ucp", &ucp),
        section("ucs", &ucs)
    );
    write(&folder.join("functions.rs"), &functions)
}

fn builder(header: &str) -> Builder {
    let mut builder = bindgen::builder()
        .header(header)
        .rust_target(RustTarget::stable(85, 0).unwrap_or_else(|_| unreachable!("an old version of Rust")))
        .rust_edition(RustEdition::Edition2024)
        .use_core()
        .ctypes_prefix("::core::ffi")
        .allowlist_recursively(true)
        .default_enum_style(EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .layout_tests(true)
        .derive_default(true)
        .derive_debug(false)
        .merge_extern_blocks(true)
        .sort_semantically(true)
        .size_t_is_usize(true)
        .formatter(bindgen::Formatter::None)
        // The operating system's types are those of the crate `libc`.
        .blocklist_type("sockaddr|sockaddr_storage|socklen_t|sa_family_t|__.*|_IO_.*|FILE")
        .raw_line("use libc::{sockaddr, sockaddr_storage, socklen_t};")
        .allowlist_var("UCP_API_M.*|UCP_ENTITY_NAME_MAX");
    for function in UCP.iter().chain(UCS) {
        builder = builder.allowlist_function(function);
    }
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }
    builder
}

/// The value of a constant.
fn number(items: &[Item], name: &str) -> Option<u32> {
    items.iter().find_map(|item| match item {
        Item::Const(constant) if constant.ident == name => match &*constant.expr {
            Expr::Lit(ExprLit {
                lit: Lit::Int(int), ..
            }) => int.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    })
}

/// The functions of a list, as lines.
fn pick(all: &[ForeignItemFn], names: &[&str]) -> Result<Vec<String>, String> {
    let find = |name: &&str| {
        all.iter()
            .find(|function| function.sig.ident == name)
            .map(line)
            .ok_or_else(|| {
                format!("the headers declare no `{name}`; help: they must be those of UCX 1.13 or newer")
            })
    };
    names.iter().map(find).collect()
}

fn line(function: &ForeignItemFn) -> String {
    let mut text = format!("fn {}(", function.sig.ident);
    for (i, argument) in function.sig.inputs.iter().enumerate() {
        if i > 0 {
            text.push_str(", ");
        }
        if let FnArg::Typed(argument) = argument {
            text.push_str(&format!("{}: {}", tokens(&argument.pat), tokens(&argument.ty)));
        }
    }
    text.push(')');
    if let ReturnType::Type(_, ty) = &function.sig.output {
        text.push_str(&format!(" -> {}", tokens(ty)));
    }
    text.push(';');
    text
}

/// A type or name on one line.
fn tokens(item: &impl quote::ToTokens) -> String {
    quote!(#item)
        .to_string()
        .replace(":: core :: ffi :: ", "")
        .replace(" :: ", "::")
        .replace("* const ", "*const ")
        .replace("* mut ", "*mut ")
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write `{}`: {error}", path.display()))
}
