//! Who may connect.

/// Judges a peer by the user that the kernel says it is.
///
/// # Errors
/// Why it is refused, in words for the peer.
pub(super) fn judge(peer: u32, own: u32, other_users: bool) -> Result<(), String> {
    if peer == own || other_users {
        return Ok(());
    }
    Err(format!(
        "it takes connections of its own user {own} only, and this process is of user {peer}; \
         help: run both as the same user, or let the target allow other users"
    ))
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn only_the_same_user_unless_others_are_allowed() {
        assert_eq!(judge(1000, 1000, false), Ok(()));
        assert_eq!(judge(1001, 1000, true), Ok(()));
        // Not even the superuser: it has other ways, and a target that meant it to connect can say so.
        for peer in [0, 1001] {
            let why = judge(peer, 1000, false).unwrap_err();
            assert!(why.contains("user 1000") && why.contains(&format!("user {peer}")));
        }
    }
}
