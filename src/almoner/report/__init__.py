"""Pictures, tables and pages of accounts. What shows single people is private, and says so.

spends     what people have spent of their budgets over time
odometers  running bounds of several odometers
losses     the epsilons of people, in levels
pages      accounts as pages of HTML, for one person and for the data holder
figures    how all of them are drawn, without a display
"""
