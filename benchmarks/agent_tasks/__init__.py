"""Questions of agents, answered by scripts with the tools of this project and of other servers."""
