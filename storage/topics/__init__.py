"""Topics and consumer groups: messages by position, cursors of readers, deliveries."""

PUBLIC = ("groups", "message_rows", "messages", "topics")
