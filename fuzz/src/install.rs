//! Images that an executor installs: the memory is real, and nothing runs.

use std::sync::{Arc, OnceLock};

use ifunc_exec::{
    ContainOptions, DebugInfo, Executor as _, HostSymbols, ImageExecutor, ImageExecutorOptions,
};

/// Address space for code, and what one image may take of it.
const CODE: usize = 4 << 20;
const IMAGE: usize = 1 << 20;

fn executor() -> &'static ImageExecutor {
    static EXECUTOR: OnceLock<ImageExecutor> = OnceLock::new();
    EXECUTOR.get_or_init(|| {
        let options = ImageExecutorOptions {
            code_bytes: CODE,
            max_images: 8,
            max_image_memory: IMAGE,
            stack_bytes: 1 << 20,
            debug: DebugInfo::names(),
            library_folders: Vec::new,
            contain: ContainOptions::default(),
            answers: None,
            runners: None,
        };
        let symbols = HostSymbols::new().expect("no export twice");
        ImageExecutor::new(options, symbols, Arc::new(())).expect("memory")
    })
}

/// An image that is installed can be read back, byte by byte, and its entries are where it says.
pub fn run(data: &[u8]) {
    let id = *blake3::hash(data).as_bytes();
    let Ok(valid) = executor().validate(&id, data) else {
        return;
    };
    let Ok(installed) = executor().install(&valid, None) else {
        return;
    };
    assert_eq!(installed.id, id);
    let original = installed.original().expect("its bytes are restored");
    assert_eq!(&*original, data);
    assert_eq!(original.got_entries().count(), valid.image().imports().count());
    let offsets: Vec<u32> = valid.image().entries().map(|entry| entry.main).collect();
    let entries: Vec<u32> = ImageExecutor::entries(&installed)
        .map(|entry| entry.main_offset())
        .collect();
    assert_eq!(entries, offsets);
    assert!(executor().image_count() <= 8);
}
