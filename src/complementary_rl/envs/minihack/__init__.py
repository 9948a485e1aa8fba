"""MiniHack levels on the NetHack Learning Environment, as text (extra ``minihack``)."""
