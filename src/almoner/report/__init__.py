"""Pictures, tables and pages of accounts. What shows single people is private, and says so.

figures    what people have spent over time, running bounds, trade-offs; and how all pictures are drawn
losses     the epsilons of people, in levels
pages      accounts as pages of HTML, for one person and for the data holder
"""
