//! Which users may connect.

/// Checks whether a peer of this user, as the kernel reports it, may connect.
///
/// # Errors
/// The reason for the peer, if it may not.
pub(super) fn check_user(peer: u32, own: u32, other_users: bool) -> Result<(), String> {
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
    use super::check_user;

    #[test]
    fn only_the_same_user_unless_others_are_allowed() {
        assert_eq!(check_user(1000, 1000, false), Ok(()));
        assert_eq!(check_user(1001, 1000, true), Ok(()));
        // Nor the superuser: a target that wants its connections allows other users.
        for peer in [0, 1001] {
            let why = check_user(peer, 1000, false).unwrap_err();
            assert!(why.contains("user 1000") && why.contains(&format!("user {peer}")));
        }
    }
}
