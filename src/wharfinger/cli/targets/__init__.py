"""What commands for a server need: TARGET, its client, arguments, questions at the terminal, the files of hosts."""
