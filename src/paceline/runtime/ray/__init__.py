"""Runtime with worker processes on the nodes of a Ray cluster; every module that imports ray is here."""
